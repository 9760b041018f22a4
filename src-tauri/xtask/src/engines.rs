pub struct Engine {
    pub name: String,
    pub socket: std::path::PathBuf,
}
pub fn start_all(_dir: &std::path::Path) -> anyhow::Result<Vec<Engine>> {
    anyhow::bail!("engines are not here yet")
}
