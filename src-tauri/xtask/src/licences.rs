//! `cargo xtask licences`: the parts that the product contains with their licences, as the window
//! lists them, written from what cargo and npm know of them and from the pins of the embedded Python.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::guest;
use crate::shell::{cargo, root, run_quietly};

/// Where the list goes, under the repository's root.
const LIST: &str = "src-tauri/core/src/desk/licences.json";

/// What is shipped; of these, all that is not for tests or builds.
const SHIPPED: [&str; 2] = ["runbridge", "runbridge-app"];

/// Options of `cargo xtask licences`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if the file is not what would be written.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.check {
        return check();
    }
    std::fs::write(root().join(LIST), text()?).with_context(|| format!("cannot write {LIST}"))
}

/// The list is what cargo, npm and the pins say.
pub(crate) fn check() -> anyhow::Result<()> {
    let path = root().join(LIST);
    let present = std::fs::read_to_string(path).with_context(|| format!("cannot read {LIST}"))?;
    if present != text()? {
        bail!("{LIST} is out of date; run `cargo xtask licences`");
    }
    Ok(())
}

fn text() -> anyhow::Result<String> {
    let mut parts: BTreeSet<(String, String, String)> = crates()?;
    parts.extend(scripts()?);
    parts.extend(guest::parts());
    let mut lines = Vec::new();
    for (name, version, licence) in parts {
        if licence.is_empty() {
            bail!("{name} {version} does not say its licence");
        }
        lines.push(json!({ "name": name, "version": version, "licence": licence }).to_string());
    }
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// Crates on every system, by what the shipped packages depend on.
fn crates() -> anyhow::Result<BTreeSet<(String, String, String)>> {
    let metadata = run_quietly(cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: HashMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: HashMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let mut waiting: Vec<String> = packages
        .iter()
        .filter(|(_, package)| SHIPPED.iter().any(|shipped| package["name"] == *shipped))
        .map(|(id, _)| id.clone())
        .collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        for dependency in list(&nodes[&id]["deps"]) {
            let kinds = list(&dependency["dep_kinds"]);
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                waiting.push(text(&dependency["pkg"]));
            }
        }
    }
    let theirs = reached.iter().map(|id| &packages[id]);
    Ok(theirs
        .filter(|package| !package["source"].is_null())
        .map(|package| {
            let licence = text(&package["license"]).replace('/', " OR ");
            (text(&package["name"]), text(&package["version"]), licence)
        })
        .collect())
}

/// What the window's script contains.
fn scripts() -> anyhow::Result<BTreeSet<(String, String, String)>> {
    let read = |name: &str| -> anyhow::Result<Value> {
        let path = root().join("ui").join(name);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    };
    let (package, lock) = (read("package.json")?, read("package-lock.json")?);
    let mut names = package["dependencies"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    // A compiler that leaves a part of itself in what it compiles.
    names.insert("svelte".to_owned(), Value::Null);
    let named = names.keys().map(|name| {
        let installed = &lock["packages"][format!("node_modules/{name}")];
        let text = |key: &str| installed[key].as_str().unwrap_or_default().to_owned();
        (name.clone(), text("version"), text("license"))
    });
    Ok(named.collect())
}
