//! What the tray shows, as a pure function of the bridge's state. It knows no menu of any system and
//! draws nothing.

use runbridge_core::status::{BridgeStatus, Presets, TrayIcon};
use serde::{Deserialize, Serialize};

/// Names in submenus at most; a menu that leaves the screen serves nobody. The window has all.
const ROWS_MAX: usize = 20;

/// Characters of a name or a title.
const CHARS_MAX: usize = 40;

const MIB: u64 = 1024 * 1024;

/// The whole tray.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) icon: TrayIcon,
    /// Said of the icon, where the system shows such.
    pub(crate) tooltip: String,
    pub(crate) items: Vec<Item>,
}

/// One line of a menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// To be read, not clicked.
    Text(String),
    Separator,
    Click {
        label: String,
        action: Action,
    },
    Check {
        label: String,
        action: Action,
        checked: bool,
        enabled: bool,
    },
    Menu {
        /// Stays the same while the label changes.
        name: &'static str,
        label: String,
        items: Vec<Item>,
    },
}

/// What a click asks for. It travels as the item's identifier, so that a click means its item even if
/// the menu has changed since it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Open,
    TogglePaused,
    StopRun(String),
    ToggleServer(String),
    SetLimit(String, u64),
    ToggleLaunchAtLogin,
    Quit,
}

/// The tray of a bridge that stands so.
pub(crate) fn of(bridge: &BridgeStatus) -> Shown {
    let status = status_line(bridge);
    let mut items = vec![
        Item::Text(status.clone()),
        Item::Separator,
        Item::Click {
            label: if bridge.askers.is_empty() {
                "Open Runbridge".to_owned()
            } else {
                "Open Runbridge to answer".to_owned()
            },
            action: Action::Open,
        },
        Item::Check {
            label: "Pause all".to_owned(),
            action: Action::TogglePaused,
            checked: bridge.paused,
            enabled: true,
        },
        Item::Separator,
        clients(bridge),
        runs(bridge),
        servers(bridge),
    ];
    items.extend(bridge.presets.iter().map(presets));
    items.extend([
        Item::Separator,
        Item::Check {
            label: "Start at login".to_owned(),
            action: Action::ToggleLaunchAtLogin,
            checked: bridge.launch_at_login,
            enabled: true,
        },
        Item::Click {
            label: "Quit Runbridge".to_owned(),
            action: Action::Quit,
        },
    ]);
    Shown {
        icon: bridge.icon(),
        tooltip: format!("Runbridge: {status}"),
        items,
    }
}

/// The tray before the bridge has said anything.
pub(crate) fn starting() -> Shown {
    Shown {
        icon: TrayIcon::Idle,
        tooltip: "Runbridge: starting".to_owned(),
        items: vec![
            Item::Text("Starting".to_owned()),
            Item::Separator,
            Item::Click {
                label: "Quit Runbridge".to_owned(),
                action: Action::Quit,
            },
        ],
    }
}

fn status_line(bridge: &BridgeStatus) -> String {
    if bridge.paused {
        return "Paused, no run starts".to_owned();
    }
    match bridge.askers.as_slice() {
        [] => {}
        [one] => return format!("{} asks you something", cut(one)),
        more => return format!("{} questions for you", more.len()),
    }
    match bridge.attention.as_slice() {
        [] => {}
        [one] => return cut(&one.error.message),
        more => return format!("{} things need you", more.len()),
    }
    match (bridge.runs.len(), bridge.connections.len()) {
        (0, 0) => "Ready, no client connected".to_owned(),
        (0, clients) => format!("Ready, {} connected", counted(clients, "client")),
        (runs, _) => format!("{} under way", counted(runs, "run")),
    }
}

fn clients(bridge: &BridgeStatus) -> Item {
    let mut names: Vec<(String, usize)> = Vec::new();
    for connection in &bridge.connections {
        match names
            .iter_mut()
            .find(|(name, _)| *name == connection.client)
        {
            Some((_, count)) => *count += 1,
            None => names.push((connection.client.clone(), 1)),
        }
    }
    let rows = names.into_iter().map(|(name, count)| {
        let name = if name.is_empty() { "a client" } else { &name };
        Item::Text(if count > 1 {
            format!("{} ({count})", cut(name))
        } else {
            cut(name)
        })
    });
    Item::Menu {
        name: "clients",
        label: format!("Clients ({})", bridge.connections.len()),
        items: bounded(rows.collect(), "No client is connected"),
    }
}

fn runs(bridge: &BridgeStatus) -> Item {
    let rows = bridge.runs.iter().map(|run| Item::Click {
        label: format!("Stop “{}” of {}", cut(&run.title), cut(&run.client)),
        action: Action::StopRun(run.id.clone()),
    });
    Item::Menu {
        name: "runs",
        label: format!("Runs ({})", bridge.runs.len()),
        items: bounded(rows.collect(), "Nothing runs"),
    }
}

fn servers(bridge: &BridgeStatus) -> Item {
    let rows = bridge.servers.iter().map(|server| {
        let trouble = if server.in_trouble {
            ", in trouble"
        } else {
            ""
        };
        Item::Check {
            label: format!("{}{trouble}", cut(&server.name)),
            action: Action::ToggleServer(server.name.clone()),
            checked: server.enabled,
            enabled: true,
        }
    });
    let on = bridge
        .servers
        .iter()
        .filter(|server| server.enabled)
        .count();
    Item::Menu {
        name: "servers",
        label: format!("Servers ({on} of {} on)", bridge.servers.len()),
        items: bounded(rows.collect(), "No server was found"),
    }
}

fn presets(presets: &Presets) -> Item {
    let about = match presets.limit {
        "memory_bytes_max" => "Memory per sandbox",
        "run_ms_default" => "Time per run",
        "cpu_thousandths_max" => "CPU per sandbox",
        other => other,
    };
    let mut values = presets.values.clone();
    if !values.contains(&presets.value) {
        // No limit is the largest of all.
        let size = |value: u64| value.checked_sub(1).unwrap_or(u64::MAX);
        let place = values.partition_point(|value| size(*value) < size(presets.value));
        values.insert(place, presets.value);
    }
    let mut items: Vec<Item> = values
        .into_iter()
        .map(|value| Item::Check {
            label: measure(presets.limit, value),
            action: Action::SetLimit(presets.limit.to_owned(), value),
            checked: value == presets.value,
            enabled: !presets.fixed,
        })
        .collect();
    if presets.fixed {
        items.push(Item::Text("Set by the environment".to_owned()));
    }
    Item::Menu {
        name: presets.limit,
        label: format!("{about}: {}", measure(presets.limit, presets.value)),
        items,
    }
}

/// A limit's value as people say it.
fn measure(limit: &str, value: u64) -> String {
    match limit {
        "memory_bytes_max" if value >= 1024 * MIB => {
            format!("{} GiB", shortest(value, 1024 * MIB))
        }
        "memory_bytes_max" => format!("{} MiB", shortest(value, MIB)),
        "run_ms_default" if value >= 60_000 && value.is_multiple_of(60_000) => {
            format!("{} min", value / 60_000)
        }
        "run_ms_default" => format!("{} s", shortest(value, 1000)),
        "cpu_thousandths_max" => match value {
            0 => "no limit".to_owned(),
            1000 => "1 core".to_owned(),
            _ => format!("{} cores", shortest(value, 1000)),
        },
        _ => value.to_string(),
    }
}

/// `value / unit` with at most one digit behind the point.
fn shortest(value: u64, unit: u64) -> String {
    let tenths = (value as f64 / unit as f64 * 10.0).round() / 10.0;
    tenths.to_string()
}

fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

fn bounded(mut rows: Vec<Item>, empty: &str) -> Vec<Item> {
    if rows.is_empty() {
        return vec![Item::Text(empty.to_owned())];
    }
    if rows.len() > ROWS_MAX {
        let left_out = rows.len() - ROWS_MAX;
        rows.truncate(ROWS_MAX);
        rows.push(Item::Text(format!("{left_out} more in the window")));
    }
    rows
}

/// The beginning of a text of others, in one line. Some systems read `&` and `_` as the mark of a
/// shortcut; what applies the menu sees to that.
fn cut(text: &str) -> String {
    let mut line: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(CHARS_MAX + 1)
        .collect();
    if line.chars().count() > CHARS_MAX {
        line.pop();
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its set-up fails")]

    use super::*;

    fn of_limit(limit: &'static str, value: u64, values: &[u64]) -> Presets {
        Presets {
            limit,
            value,
            fixed: false,
            values: values.to_vec(),
        }
    }

    fn labels(item: &Item) -> Vec<String> {
        let Item::Menu { items, .. } = item else {
            panic!("{item:?} is no menu");
        };
        items
            .iter()
            .map(|item| match item {
                Item::Text(label) | Item::Click { label, .. } => label.clone(),
                Item::Check {
                    label,
                    checked,
                    enabled,
                    ..
                } => format!(
                    "{} {label}{}",
                    if *checked { "x" } else { "-" },
                    if *enabled { "" } else { " (off)" }
                ),
                Item::Separator | Item::Menu { .. } => panic!("{item:?}"),
            })
            .collect()
    }

    #[test]
    fn the_present_value_is_checked_and_offered_even_if_it_is_unusual() {
        let values = [256 * MIB, 512 * MIB, 1024 * MIB];
        let usual = presets(&of_limit("memory_bytes_max", 512 * MIB, &values));
        assert_eq!(labels(&usual), ["- 256 MiB", "x 512 MiB", "- 1 GiB"]);
        let unusual = presets(&of_limit("memory_bytes_max", 600 * MIB, &values));
        assert_eq!(
            labels(&unusual),
            ["- 256 MiB", "- 512 MiB", "x 600 MiB", "- 1 GiB"]
        );
        let cpu = presets(&of_limit("cpu_thousandths_max", 3000, &[500, 1000, 0]));
        assert_eq!(
            labels(&cpu),
            ["- 0.5 cores", "- 1 core", "x 3 cores", "- no limit"]
        );
        let cpu = presets(&of_limit("cpu_thousandths_max", 0, &[500, 1000]));
        assert_eq!(labels(&cpu), ["- 0.5 cores", "- 1 core", "x no limit"]);
    }

    #[test]
    fn what_the_environment_sets_cannot_be_chosen() {
        let mut time = of_limit("run_ms_default", 90_000, &[30_000, 120_000]);
        time.fixed = true;
        assert_eq!(
            labels(&presets(&time)),
            [
                "- 30 s (off)",
                "x 90 s (off)",
                "- 2 min (off)",
                "Set by the environment"
            ]
        );
    }

    #[test]
    fn a_menu_of_nothing_says_so() {
        let shown = of(&BridgeStatus::default());
        assert_eq!(shown.icon, TrayIcon::Idle);
        assert_eq!(shown.tooltip, "Runbridge: Ready, no client connected");
        let menus: Vec<_> = shown
            .items
            .iter()
            .filter(|item| matches!(item, Item::Menu { .. }))
            .map(labels)
            .collect();
        assert_eq!(
            menus,
            [
                ["No client is connected"],
                ["Nothing runs"],
                ["No server was found"]
            ]
        );
    }

    #[test]
    fn a_question_is_seen_before_all_else() {
        let mut bridge = BridgeStatus {
            askers: vec!["github".to_owned()],
            ..BridgeStatus::default()
        };
        let shown = of(&bridge);
        assert_eq!(shown.icon, TrayIcon::Attention);
        assert_eq!(shown.tooltip, "Runbridge: github asks you something");
        let label = "Open Runbridge to answer".to_owned();
        let action = Action::Open;
        assert!(shown.items.contains(&Item::Click { label, action }));
        bridge.askers.push("mail".to_owned());
        assert_eq!(of(&bridge).tooltip, "Runbridge: 2 questions for you");
    }

    #[test]
    fn names_of_others_stay_short_and_in_one_line() {
        assert_eq!(cut("a\nb"), "a b");
        let long = cut(&"é".repeat(CHARS_MAX + 1));
        assert_eq!(long, format!("{}…", "é".repeat(CHARS_MAX)));
        assert_eq!(cut(&"é".repeat(CHARS_MAX)).chars().count(), CHARS_MAX);
    }

    #[test]
    fn a_long_menu_says_what_it_leaves_out() {
        let rows = (0..ROWS_MAX + 3).map(|row| Item::Text(row.to_string()));
        let rows = bounded(rows.collect(), "none");
        assert_eq!(rows.len(), ROWS_MAX + 1);
        assert_eq!(
            rows[ROWS_MAX],
            Item::Text("3 more in the window".to_owned())
        );
        assert_eq!(bounded(Vec::new(), "none"), [Item::Text("none".to_owned())]);
    }
}
