//! What a tray shows: one plain value, the same for the same bridge.
//!
//! It has no words: what a tray says is the shell's. Whoever shows it draws it anew when it differs.

use crate::api::{Attention, Connection, Level, Run, Server, ServerState};
use crate::settings::Settings;
use crate::settings::limits;

/// The bridge at a glance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeStatus {
    /// Nothing runs until it is resumed.
    pub paused: bool,
    /// Clients attached now.
    pub connections: Vec<Connection>,
    /// Runs that have not ended, the oldest first.
    pub runs: Vec<Run>,
    /// Servers that wait for an answer of the user, the one that waits longest first.
    pub askers: Vec<String>,
    /// Servers, by name.
    pub servers: Vec<TrayServer>,
    /// What needs the user, the worst first.
    pub attention: Vec<Attention>,
    /// The user wants the app started with the computer.
    pub launch_at_login: bool,
    /// Limits with a few values to choose from.
    pub presets: Vec<Presets>,
}

/// A server as a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrayServer {
    /// Its name.
    pub name: String,
    /// Whether runs may call it.
    pub enabled: bool,
    /// It is on and cannot be used.
    pub in_trouble: bool,
}

/// A limit and the values that a tray offers for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presets {
    /// The limit's name, as the desk's `set_limit` takes it.
    pub limit: &'static str,
    /// In force now; it need not be one of the values.
    pub value: u64,
    /// A variable of the environment sets it, so that no choice has an effect.
    pub fixed: bool,
    /// The offered values, the smallest first; of CPUs, 0 for no limit comes last.
    pub values: Vec<u64>,
}

/// How a tray's icon looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrayIcon {
    /// Nothing runs and nothing is wrong.
    Idle,
    /// Something runs.
    Active,
    /// Something needs the user.
    Attention,
}

impl BridgeStatus {
    /// The icon. What is wrong is seen even while something runs, and so is what a run waits for.
    pub fn icon(&self) -> TrayIcon {
        if !self.askers.is_empty() || self.attention.iter().any(|it| it.level == Level::Error) {
            TrayIcon::Attention
        } else if !self.runs.is_empty() {
            TrayIcon::Active
        } else if self.attention.is_empty() {
            TrayIcon::Idle
        } else {
            TrayIcon::Attention
        }
    }
}

impl TrayServer {
    pub(crate) fn of(server: &Server) -> Self {
        Self {
            name: server.name.clone(),
            enabled: server.enabled,
            in_trouble: server.enabled
                && matches!(
                    server.state,
                    ServerState::Failed { .. }
                        | ServerState::NeedsValue { .. }
                        | ServerState::NeedsSignIn
                ),
        }
    }
}

const MIB: u64 = 1 << 20;

/// What a tray offers for memory, time and CPU.
pub(crate) fn presets(settings: &Settings) -> Vec<Presets> {
    let offered: [(&'static str, &[u64]); 3] = [
        (
            "memory_bytes_max",
            &[256 * MIB, 512 * MIB, 1024 * MIB, 2048 * MIB, 4096 * MIB],
        ),
        (
            "run_ms_default",
            &[15_000, 30_000, 60_000, 120_000, 300_000],
        ),
        ("cpu_thousandths_max", &[500, 1_000, 2_000, 4_000, 0]),
    ];
    offered
        .into_iter()
        .filter_map(|(limit, values)| {
            let row = limits::row(limit)?;
            Some(Presets {
                limit,
                value: settings.limits.get(limit)?,
                fixed: settings.limits_set.get(limit) == Some(&crate::settings::Layer::Variable),
                values: values
                    .iter()
                    .copied()
                    .filter(|value| row.accepts(*value))
                    .collect(),
            })
        })
        .collect()
}
