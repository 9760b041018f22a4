//! What the compiler cannot check: who may know what. It fails on a broken arrow between the parts
//! and only tells of the rest, since a long file is a question and not an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::shell::{cargo, root, run, run_quietly, say, which};

/// Lines from which a file is asked whether it is two.
const FILE_LINES_ASKED: usize = 500;

/// A rule on the dependencies of a package, over all steps but those of tests.
struct Arrow {
    package: &'static str,
    never: &'static [&'static str],
    why: &'static str,
}

const ARROWS: &[Arrow] = &[
    Arrow {
        package: "runbridge-sandbox",
        never: &["runbridge-core", "rmcp", "keyring", "tauri", "wry"],
        why: "the sandbox knows neither MCP, secrets nor settings",
    },
    Arrow {
        package: "runbridge-core",
        never: &["tauri", "wry"],
        why: "the library runs without a display",
    },
    Arrow {
        package: "runbridge",
        never: &["tauri", "wry"],
        why: "the sidecar starts in milliseconds",
    },
];

/// A word that only some files of a folder may use.
struct Word {
    folder: &'static str,
    words: &'static [&'static str],
    allowed: &'static [&'static str],
    why: &'static str,
}

const WORDS: &[Word] = &[
    Word {
        folder: "src-tauri/core/src",
        words: &[
            "tauri::",
            "io::stdin(",
            "io::stdout(",
            "io::Stdin",
            "io::Stdout",
            "println!(",
            "print!(",
        ],
        allowed: &[],
        why: "core names neither Tauri, stdin nor stdout",
    },
    Word {
        folder: "src-tauri/sandbox/src",
        words: &[
            "println!(",
            "print!(",
            "io::stdin(",
            "io::stdout(",
            "env::var",
        ],
        // A worker is a process of its own: its standard streams are its channel to the host.
        allowed: &["wasi/worker.rs"],
        why: "the sandbox is told what it needs",
    },
    Word {
        folder: "src-tauri/core/src",
        words: &["env::var", "env::vars"],
        allowed: &["paths.rs", "upstream/stdio.rs", "launch_env.rs"],
        why: "the environment is read in one place and passed on",
    },
    Word {
        folder: "src-tauri/core/src/clients",
        words: &[
            "fs::write(",
            "File::create(",
            "fs::rename(",
            "OpenOptions::new(",
        ],
        allowed: &["replace.rs"],
        why: "only clients/replace.rs writes files of other programs",
    },
    Word {
        folder: "src-tauri/core/src",
        words: &["use keyring::", "secret_service"],
        allowed: &["secrets/keyring.rs"],
        why: "only secrets/keyring.rs talks to the keyring",
    },
    Word {
        folder: "src-tauri/sidecar/src",
        words: &["println!(", "print!("],
        allowed: &["cli.rs", "cli/*"],
        why: "stdout of the sidecar carries MCP; only its commands print",
    },
];

/// `cargo xtask tidy`.
pub(crate) fn run_all() -> anyhow::Result<()> {
    let mut broken = arrows()?;
    let sources = sources()?;
    for word in WORDS {
        broken.extend(
            sources
                .iter()
                .filter_map(|(path, text)| {
                    let inside = path
                        .strip_prefix(word.folder)
                        .ok()?
                        .to_string_lossy()
                        .into_owned();
                    let may = word
                        .allowed
                        .iter()
                        .any(|allowed| match allowed.strip_suffix('*') {
                            Some(folder) => inside.starts_with(folder),
                            None => inside == *allowed,
                        });
                    if may {
                        None
                    } else {
                        Some(uses(path, text, word))
                    }
                })
                .flatten(),
        );
    }
    for note in sources.iter().flat_map(|(path, text)| notes(path, text)) {
        say(format_args!("note: {note}"));
    }
    licences()?;
    if !broken.is_empty() {
        bail!("{} broken:\n  {}", broken.len(), broken.join("\n  "));
    }
    say("tidy: all arrows hold");
    Ok(())
}

fn arrows() -> anyhow::Result<Vec<String>> {
    let text = run_quietly(cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata gave no JSON")?;
    let graph = Graph::of(&metadata);
    Ok(ARROWS
        .iter()
        .flat_map(|arrow| graph.broken(arrow))
        .collect())
}

/// Who depends on whom, by package name, tests left out.
struct Graph {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn of(metadata: &Value) -> Self {
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let names: BTreeMap<String, String> = items(&metadata["packages"])
            .iter()
            .map(|one| (text(&one["id"]), text(&one["name"])))
            .collect();
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in items(&metadata["resolve"]["nodes"]) {
            let from = names.get(&text(&node["id"])).cloned().unwrap_or_default();
            let to = edges.entry(from).or_default();
            for dependency in items(&node["deps"]) {
                let only_tests = items(&dependency["dep_kinds"])
                    .iter()
                    .all(|kind| kind["kind"] == "dev");
                if !only_tests {
                    to.extend(names.get(&text(&dependency["pkg"])).cloned());
                }
            }
        }
        Self { edges }
    }

    fn broken(&self, arrow: &Arrow) -> Vec<String> {
        let mut reached: BTreeMap<&str, Option<&str>> = BTreeMap::from([(arrow.package, None)]);
        let mut open = vec![arrow.package];
        while let Some(from) = open.pop() {
            for to in self.edges.get(from).into_iter().flatten() {
                if !reached.contains_key(to.as_str()) {
                    reached.insert(to, Some(from));
                    open.push(to);
                }
            }
        }
        let found = arrow
            .never
            .iter()
            .filter(|never| reached.contains_key(*never));
        found
            .map(|never| {
                let mut path = vec![*never];
                while let Some(Some(from)) = reached.get(path[path.len() - 1]) {
                    path.push(from);
                }
                path.reverse();
                format!("{} ({})", path.join(" -> "), arrow.why)
            })
            .collect()
    }
}

/// Every text file of ours that Git knows or would add.
fn sources() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let list = run_quietly(Command::new("git").current_dir(root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let ours = |name: &&str| {
        let kind = Path::new(name)
            .extension()
            .and_then(|kind| kind.to_str())
            .unwrap_or_default();
        [
            "rs", "py", "mjs", "ts", "svelte", "css", "toml", "yml", "md",
        ]
        .contains(&kind)
            && !name.contains("/fixtures/")
            && !name.contains("/snapshots/")
    };
    let read = |name| {
        std::fs::read_to_string(root().join(name))
            .ok()
            .map(|text| (PathBuf::from(name), text))
    };
    Ok(list.lines().filter(ours).filter_map(read).collect())
}

/// Lines of code, tests left out, that use one of the words.
fn uses(path: &Path, text: &str, word: &Word) -> Vec<String> {
    code_lines(text)
        .filter_map(|(number, line)| {
            let found = word.words.iter().find(|one| has_word(line, one))?;
            Some(format!(
                "{}:{number}: `{found}`: {}",
                path.display(),
                word.why
            ))
        })
        .collect()
}

/// `print!(` is no use inside `eprint!(`.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
    })
}

/// Lines with their numbers, without comments and without the tests at the end of a file.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    lines
        .take_while(|(_, line)| *line != "#[cfg(test)]")
        .filter(|(_, line)| !line.starts_with("//"))
}

/// What is worth a look.
fn notes(path: &Path, text: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let count = text.lines().count();
    let is_code = path
        .extension()
        .is_some_and(|kind| kind != "md" && kind != "toml");
    if count > FILE_LINES_ASKED && is_code {
        notes.push(format!(
            "{}: {count} lines; is it one idea?",
            path.display()
        ));
    }
    // Put together so that this file is not among its own findings.
    let unfinished = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let homes = [
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
        concat!("/ro", "ot/"),
    ];
    for (index, line) in text.lines().enumerate() {
        if unfinished.iter().any(|word| line.contains(word)) {
            notes.push(format!("{}:{}: unfinished", path.display(), index + 1));
        }
    }
    let tests = path.starts_with("tests") || path.ends_with("tests.rs");
    if is_code && !tests {
        let found =
            code_lines(text).filter(|(_, line)| homes.iter().any(|home| line.contains(home)));
        notes.extend(found.map(|(number, _)| {
            format!("{}:{number}: a path of somebody's machine?", path.display())
        }));
    }
    notes
}

/// `deny.toml` is checked where its tool is there: building it takes longer than all the tests.
fn licences() -> anyhow::Result<()> {
    if which("cargo-deny").is_none() {
        say("note: cargo-deny is not installed; licences and bans were not checked");
        return Ok(());
    }
    run(cargo().args([
        "deny",
        "check",
        "--config",
        "src-tauri/deny.toml",
        "licenses",
        "bans",
        "sources",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_dependency_is_found_with_its_path_and_test_dependencies_are_not() {
        let metadata = serde_json::json!({
            "packages": [
                { "id": "s", "name": "runbridge-sandbox" }, { "id": "m", "name": "middle" },
                { "id": "r", "name": "rmcp" }, { "id": "k", "name": "keyring" },
            ],
            "resolve": { "nodes": [
                { "id": "s", "deps": [
                    { "pkg": "m", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "k", "dep_kinds": [{ "kind": "dev" }] },
                ]},
                { "id": "m", "deps": [{ "pkg": "r", "dep_kinds": [{ "kind": "build" }] }] },
                { "id": "r", "deps": [] },
                { "id": "k", "deps": [] },
            ]},
        });
        assert_eq!(
            Graph::of(&metadata).broken(&ARROWS[0]),
            [
                "runbridge-sandbox -> middle -> rmcp (the sandbox knows neither MCP, secrets nor settings)"
            ],
        );
    }

    #[test]
    fn words_are_found_in_code_and_not_in_comments_tests_or_longer_words() {
        let word = Word {
            folder: "",
            words: &["print!("],
            allowed: &[],
            why: "no",
        };
        let text = "// print!(1)\neprint!(2);\nprint!(3);\n#[cfg(test)]\nmod tests { print!(4) }\n";
        assert_eq!(
            uses(Path::new("a.rs"), text, &word),
            ["a.rs:3: `print!(`: no"]
        );
    }
}
