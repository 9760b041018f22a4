//! Every fixture: connect, connect again, disconnect; and the same with a stranger writing in between.

use std::path::PathBuf;

use runbridge_core::clients::connect::{Action, State};
use runbridge_core::clients::parse::{Document, Format};

use crate::home::{Home, PROGRAM, fixtures};

/// Every client of a home folder with every file that it may be connected through.
fn files(home: &Home) -> Vec<(&'static str, PathBuf)> {
    let mut files = Vec::new();
    for standing in home.standings() {
        match standing.state {
            State::Several { files: several } => {
                files.extend(several.into_iter().map(|file| (standing.id, file)));
            }
            _ => files.push((standing.id, standing.file.unwrap())),
        }
    }
    files
}

fn act(home: &Home, client: &str, action: Action, file: &std::path::Path) -> bool {
    home.with(|connector| {
        let plan = connector.carry_out(client, action, Some(file), false);
        plan.unwrap_or_else(|error| {
            panic!("{action:?} {client} through {}: {error}", file.display())
        })
        .is_change()
    })
}

fn format(file: &std::path::Path) -> Format {
    match file.extension().unwrap().to_str().unwrap() {
        "toml" => Format::Toml,
        "yaml" => Format::Yaml,
        _ => Format::Json,
    }
}

#[test]
fn every_client_is_connected_and_left_as_it_was() {
    let mut seen = std::collections::BTreeSet::new();
    for fixture in fixtures() {
        let home = Home::of(&fixture);
        for (client, file) in files(&home) {
            let before = std::fs::read(&file).ok();
            let refused = home.standings().into_iter().any(|standing| {
                standing.id == client
                    && matches!(
                        standing.state,
                        State::Unreadable { .. } | State::Forbidden { .. }
                    )
            });
            if refused
                || before
                    .as_deref()
                    .is_some_and(|bytes| bytes.starts_with(b"\xFF\xFE"))
            {
                continue;
            }
            seen.insert(client);
            assert!(act(&home, client, Action::Connect, &file), "{client}");
            let connected = std::fs::read(&file).unwrap();
            assert!(String::from_utf8_lossy(&connected).contains(PROGRAM));
            assert!(
                !act(&home, client, Action::Connect, &file),
                "{client} twice"
            );
            assert_eq!(std::fs::read(&file).unwrap(), connected, "{client} twice");
            let ours = home.discover();
            assert!(
                ours.skipped
                    .iter()
                    .any(|skipped| skipped.source.path == file
                        && skipped.name == "runbridge"
                        && skipped.reason.contains("Runbridge itself")),
                "{client} {}: {:?}",
                file.display(),
                ours.skipped
            );
            act(&home, client, Action::Disconnect, &file);
            assert_eq!(
                std::fs::read(&file).ok(),
                before,
                "{client} {}",
                file.display()
            );
        }
    }
    assert!(seen.len() >= 28, "only {} clients: {seen:?}", seen.len());
}

#[test]
fn only_our_entry_goes_when_a_stranger_wrote_in_between() {
    for fixture in fixtures() {
        let home = Home::of(&fixture);
        for (client, file) in files(&home) {
            let Some(before) = std::fs::read_to_string(&file).ok() else {
                continue;
            };
            if home
                .with(|connector| connector.plan(client, Action::Connect, Some(&file), false))
                .is_err()
            {
                continue;
            }
            act(&home, client, Action::Connect, &file);
            let connected = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, format!("{connected}\n\n")).unwrap();
            act(&home, client, Action::Disconnect, &file);
            let after = std::fs::read_to_string(&file).unwrap();
            let parse = |text: &str| {
                let text = text.trim_start_matches('\u{FEFF}').to_owned();
                Document::parse(text, format(&file)).unwrap().root.to_json()
            };
            assert_eq!(parse(&after), parse(&before), "{client} {}", file.display());
            assert_eq!(
                after.trim_end(),
                before.trim_end(),
                "{client} {}",
                file.display()
            );
        }
    }
}
