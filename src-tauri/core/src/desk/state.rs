//! The whole state, for a window that has just opened or has missed something.

use std::sync::Arc;

use chrono::{Local, NaiveTime, TimeZone as _};

use super::{Answer, Desk, blocking, limits, lock};
use crate::api::State;

impl Desk {
    /// All that a window shows.
    pub async fn get_state(&self) -> Answer<State> {
        self.0.bridge.discovered().await;
        let inner = Arc::clone(&self.0);
        blocking(move || {
            inner.look_at_everything();
            // Read first: what follows then contains it, and a change that is told meanwhile is
            // applied once more to the same effect.
            let seq = inner.bridge.events().seq();
            let settings = inner.bridge.settings();
            let told = lock(&inner.told);
            Ok(State {
                seq,
                app: inner.app_info(),
                settings: super::Inner::app_settings(&settings),
                limits: limits::all(&settings),
                paused: inner.bridge.is_paused(),
                attention: told.attention.clone(),
                connections: told.connections.values().cloned().collect(),
                servers: told.servers.values().cloned().collect(),
                problems: told.problems.clone(),
                skipped: told.skipped.clone(),
                sandbox: told
                    .sandbox
                    .clone()
                    .unwrap_or_else(|| inner.sandbox_status()),
                interpreters: told.interpreters.values().cloned().collect(),
                runs: inner.bridge.live_runs().list(),
                questions: inner.bridge.open_questions().list(),
                seen: told.seen,
                savings: told.savings,
                memory: told.memory,
            })
        })
        .await
    }
}

/// When today began where the user is.
pub(super) fn midnight_ms() -> i64 {
    let now = Local::now();
    let midnight = now.date_naive().and_time(NaiveTime::MIN);
    // Where clocks are put forward at midnight, the day begins an hour later.
    let began = Local.from_local_datetime(&midnight).earliest();
    began.map_or_else(|| now.timestamp_millis(), |began| began.timestamp_millis())
}
