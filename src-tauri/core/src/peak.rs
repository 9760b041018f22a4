//! The most memory that a run used, as far as looking now and then can tell. Knows a gauge, and nothing
//! of where the figure goes.

use std::time::Duration;

use runbridge_sandbox::Gauge;

/// Most runs are over by then, and an engine is asked a question for each look.
const FIRST_AFTER: Duration = Duration::from_millis(50);

/// Between two looks; each is twice as long as the one before, up to this.
const BETWEEN_MAX: Duration = Duration::from_secs(1);

/// Tell what is used, again and again, until this is dropped.
pub(crate) async fn watch(gauge: Option<Gauge>, used: impl Fn(u64)) {
    let mut between = FIRST_AFTER;
    loop {
        tokio::time::sleep(between).await;
        let Some(usage) = (match &gauge {
            Some(gauge) => gauge().await,
            None => None,
        }) else {
            // There is no gauge, or the guest is gone.
            return std::future::pending().await;
        };
        used(usage.memory_bytes);
        between = (between * 2).min(BETWEEN_MAX);
    }
}
