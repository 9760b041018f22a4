pub fn ensure(_e: &runbridge_testkit::Engine) -> anyhow::Result<()> {
    Ok(())
}
