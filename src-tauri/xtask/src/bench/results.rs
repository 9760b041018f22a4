//! What the benchmark found, and how it is shown: against the goals and against the bridge that this
//! one replaces.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// One thing measured: what it is called, what it should be, what the earlier bridge needed.
pub(super) struct Measure {
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    goal: Option<f64>,
    /// For the built-in sandbox, where that shall do better.
    goal_builtin: Option<f64>,
    /// The earlier Python bridge on the standard machine; it was measured once, not here.
    before: Option<f64>,
}

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        key: "initialize",
        title: "start to `initialize` answered",
        unit: "ms",
        goal: Some(40.0),
        goal_builtin: None,
        before: Some(789.0),
    },
    Measure {
        key: "first_cold",
        title: "first run, no spare ready",
        unit: "ms",
        goal: Some(300.0),
        goal_builtin: Some(15.0),
        before: Some(871.0),
    },
    Measure {
        key: "first_warm",
        title: "first run, spare ready",
        unit: "ms",
        goal: Some(30.0),
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "session",
        title: "first run of another session in a running bridge",
        unit: "ms",
        goal: Some(30.0),
        goal_builtin: Some(2.0),
        before: None,
    },
    Measure {
        key: "first_ever",
        title: "first run on a machine, Python compiled for it",
        unit: "ms",
        goal: None,
        goal_builtin: Some(8000.0),
        before: None,
    },
    Measure {
        key: "warm",
        title: "`print(1)` in a live session",
        unit: "ms",
        goal: Some(2.0),
        goal_builtin: Some(1.0),
        before: Some(51.0),
    },
    Measure {
        key: "call",
        title: "one proxied call in a loop of 1,000",
        unit: "ms",
        goal: Some(0.6),
        goal_builtin: Some(0.3),
        before: Some(1.19),
    },
    Measure {
        key: "gather_16",
        title: "100 calls of 50 ms together, 16 at once",
        unit: "ms",
        goal: Some(400.0),
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "gather_128",
        title: "100 calls of 50 ms together, 128 at once",
        unit: "ms",
        goal: Some(150.0),
        goal_builtin: Some(130.0),
        before: Some(5334.0),
    },
    Measure {
        key: "http_call",
        title: "a call to a server over HTTP, above the bare exchange",
        unit: "ms",
        goal: Some(0.5),
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "http_call_rmcp",
        title: "the same, above a bare client of rmcp",
        unit: "ms",
        goal: Some(0.5),
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "http_together",
        title: "200 calls of 50 ms over HTTP together",
        unit: "ms",
        goal: Some(250.0),
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "idle",
        title: "memory when idle",
        unit: "MB",
        goal: Some(40.0),
        goal_builtin: None,
        before: Some(58.0),
    },
    Measure {
        key: "session_memory",
        title: "private memory of an idle session",
        unit: "MiB",
        goal: None,
        goal_builtin: Some(15.0),
        before: None,
    },
    Measure {
        key: "peak",
        title: "memory at its peak, 50 MB printed",
        unit: "MB",
        goal: Some(120.0),
        goal_builtin: None,
        before: Some(453.0),
    },
    Measure {
        key: "fib",
        title: "`fib(24)`, against the machine's own Python",
        unit: "×",
        goal: None,
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "squares",
        title: "`sum(i * i for i in range(300_000))`, against the same",
        unit: "×",
        goal: None,
        goal_builtin: None,
        before: None,
    },
    Measure {
        key: "discovery",
        title: "config files of 40 clients read, warm",
        unit: "ms",
        goal: Some(50.0),
        goal_builtin: None,
        before: None,
    },
];

/// Of the desktop app, which is measured apart.
pub(super) const APP_MEASURES: &[Measure] = &[
    Measure::of_app("window", "start to the loaded window", "ms", 1000.0),
    Measure::of_app("open", "memory (PSS) with the window open", "MB", 280.0),
    Measure::of_app("closed", "memory (PSS) in the tray", "MB", 120.0),
    Measure::of_app("cpu", "CPU time in ten seconds of rest", "ms", 0.0),
    Measure::of_app(
        "shown",
        "a client's run begun to seen in the window",
        "ms",
        150.0,
    ),
    Measure::of_app("relay", "what a relay adds to a warm run", "ms", 0.3),
    Measure::of_app("relay_memory", "memory (RSS) of a relay", "MB", 8.0),
];

impl Measure {
    const fn of_app(key: &'static str, title: &'static str, unit: &'static str, goal: f64) -> Self {
        Self {
            key,
            title,
            unit,
            goal: Some(goal),
            goal_builtin: None,
            before: None,
        }
    }

    fn goals(&self) -> String {
        let one = |goal: f64| format!("≤ {goal} {}", self.unit);
        match (self.goal, self.goal_builtin) {
            (None, None) => "–".to_owned(),
            (Some(goal), None) => one(goal),
            (None, Some(builtin)) => format!("built-in {}", one(builtin)),
            (Some(goal), Some(builtin)) => format!("{}, built-in {}", one(goal), one(builtin)),
        }
    }
}

/// What the result file holds.
#[derive(Serialize, Deserialize)]
pub(super) struct Results {
    /// CPU, number of cores, kernel.
    pub(super) machine: String,
    /// Repetitions of each measure that needs a new process.
    pub(super) repetitions: usize,
    /// A fixed piece of work, timed among the measures.
    pub(super) noise_ms: Spread,
    /// By engine, by measure.
    pub(super) engines: BTreeMap<String, BTreeMap<String, Spread>>,
    /// Of the desktop app, once it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) app: Option<AppResults>,
}

/// What was found of the desktop app.
#[derive(Serialize, Deserialize)]
pub(super) struct AppResults {
    /// As of the others.
    pub(super) machine: String,
    /// Lives of the app.
    pub(super) repetitions: usize,
    /// By measure.
    pub(super) values: BTreeMap<String, Spread>,
}

/// What a number of repetitions gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) n: usize,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else {
            return Self::default();
        };
        let median = f64::midpoint(values[(n - 1) / 2], values[n / 2]);
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        Self {
            n,
            median: round(median),
            min: round(min),
            max: round(max),
        }
    }
}

impl Spread {
    fn shown(&self) -> String {
        let short = |value: f64| {
            if value.abs() < 10.0 {
                format!("{value:.2}")
            } else {
                format!("{value:.0}")
            }
        };
        format!(
            "{} ({} … {})",
            short(self.median),
            short(self.min),
            short(self.max)
        )
    }
}

const BEGIN: &str = "<!-- figures: begin, written by `cargo xtask bench --readme` -->";
const END: &str = "<!-- figures: end -->";

pub(super) fn put_between(readme: &str, table: &str) -> anyhow::Result<String> {
    let parts = readme
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.with_context(|| format!("README.md lacks the two lines\n{BEGIN}\n{END}"))?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

/// The results as Markdown.
pub(super) fn table(results: &Results) -> String {
    let names: Vec<&String> = results.engines.keys().collect();
    let mut lines = vec![
        format!(
            "| median (min … max) | goal | {} | earlier bridge |",
            names
                .iter()
                .map(|name| name.as_str())
                .collect::<Vec<_>>()
                .join(" | ")
        ),
        format!("|--|--|{}--|", "--|".repeat(names.len())),
    ];
    for measure in MEASURES {
        let mut cells = vec![measure.title.to_owned(), measure.goals()];
        for name in &names {
            let spread = results.engines[*name].get(measure.key);
            cells.push(spread.map_or("–".to_owned(), Spread::shown));
        }
        cells.push(
            measure
                .before
                .map_or("–".to_owned(), |before| before.to_string()),
        );
        lines.push(format!("| {} |", cells.join(" | ")));
    }
    let noise = &results.noise_ms;
    lines.push(String::new());
    lines.push(format!(
        "{} repetitions on {}. The same piece of work took {:.0} ms ({:.0} … {:.0}) among them: that is the machine's noise.",
        results.repetitions, results.machine, noise.median, noise.min, noise.max,
    ));
    lines.join("\n")
}

/// The same of the desktop app.
pub(super) fn app_table(results: &AppResults) -> String {
    let mut lines = vec![
        "| the desktop app, median (min … max) | goal | measured |".to_owned(),
        "|--|--|--|".to_owned(),
    ];
    for measure in APP_MEASURES {
        let spread = results.values.get(measure.key);
        let found = spread.map_or("–".to_owned(), Spread::shown);
        lines.push(format!(
            "| {} | {} | {found} |",
            measure.title,
            measure.goals()
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "{} lives of the release build, on {}.",
        results.repetitions, results.machine
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends there")]

    use super::*;

    #[test]
    fn the_spread_of_an_even_number_is_between_the_middle_two() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(
            spread,
            Spread {
                n: 4,
                median: 2.5,
                min: 1.0,
                max: 4.0
            }
        );
    }

    #[test]
    fn the_table_replaces_what_is_between_the_marks_and_nothing_else() {
        let readme = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = put_between(&readme, "new").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        assert!(put_between("no marks", "new").is_err());
    }

    #[test]
    fn a_measure_that_an_engine_lacks_is_a_dash() {
        let spread = Spread::of(vec![1.0]);
        let results = Results {
            machine: "m".to_owned(),
            repetitions: 1,
            noise_ms: spread.clone(),
            engines: BTreeMap::from([(
                "podman".to_owned(),
                BTreeMap::from([("warm".to_owned(), spread)]),
            )]),
            app: None,
        };
        let table = table(&results);
        assert!(
            table.contains(
                "| `print(1)` in a live session | ≤ 2 ms, built-in ≤ 1 ms | 1.00 (1.00 … 1.00) | 51 |"
            ),
            "{table}"
        );
        assert!(
            table.contains("| first run, spare ready | ≤ 30 ms | – | – |"),
            "{table}"
        );
    }

    #[test]
    fn the_app_has_a_table_of_its_own() {
        let spread = Spread::of(vec![0.25, -0.01, 400.0]);
        let table = app_table(&AppResults {
            machine: "m".to_owned(),
            repetitions: 3,
            values: BTreeMap::from([("relay".to_owned(), spread)]),
        });
        assert!(
            table.contains("| what a relay adds to a warm run | ≤ 0.3 ms | 0.25 (-0.01 … 400) |"),
            "{table}"
        );
        assert!(
            table.contains("| CPU time in ten seconds of rest | ≤ 0 ms | – |"),
            "{table}"
        );
    }
}
