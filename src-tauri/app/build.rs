//! Lets Tauri check the configuration and make one permission for each of our commands. Which
//! commands there are is read from the capability file, the only place that opens them to the window.

use anyhow::Context as _;

const CAPABILITIES: &str = "./src-tauri/capabilities/main.json";

fn main() -> anyhow::Result<()> {
    println!("cargo::rerun-if-changed={CAPABILITIES}");
    let text = std::fs::read_to_string(CAPABILITIES)
        .with_context(|| format!("cannot read {CAPABILITIES}"))?;
    let capability: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{CAPABILITIES} is not JSON"))?;
    let commands: Vec<&'static str> = capability["permissions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|permission| permission.as_str()?.strip_prefix("allow-"))
        .map(|name| &*name.replace('-', "_").leak())
        .collect();
    tauri_build::try_build(
        tauri_build::Attributes::new()
            .capabilities_path_pattern("./src-tauri/capabilities/**/*")
            .app_manifest(tauri_build::AppManifest::new().commands(commands.leak())),
    )
}
