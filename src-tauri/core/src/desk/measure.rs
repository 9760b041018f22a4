//! What interpreters use, measured once a second while a window looks, and never else.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::{Desk, Inner, lock};
use crate::api::{Change, Measure};
use crate::timestamp::now_ms;

const EVERY: Duration = Duration::from_secs(1);

impl Desk {
    /// Have what interpreters use measured once a second, or no longer.
    pub fn watch_interpreters(&self, on: bool) {
        let measuring = on.then(|| {
            let inner = Arc::clone(&self.0);
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    inner.measure().await;
                    tokio::time::sleep(EVERY).await;
                }
            }))
        });
        // The one before ends here.
        *lock(&self.0.measuring) = measuring;
    }
}

impl Inner {
    async fn measure(&self) {
        let measured = self.bridge.interpreters().measure().await;
        let measures = measured
            .into_iter()
            .map(|(id, usage)| Measure {
                interpreter_id: id.to_string(),
                memory_bytes: usage.memory_bytes,
                cpu_thousandths: usage.cpu_thousandths,
            })
            .collect();
        self.bridge.events().tell(Change::Measured {
            at: now_ms(),
            measures,
        });
    }
}
