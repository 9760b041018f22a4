//! The order in which a client's calls arrived. Its requests are handled by tasks of their own,
//! which may overtake one another; runs of one session must not.
//!
//! A call is given its place when it is read. Whoever handles it waits for its turn, takes what must
//! be taken in order, and lets go of the place; a request that is dropped on the way, for whatever
//! reason, lets go of it too, so that no call waits for one that will never be handled.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ClientRequest, GetExtensions as _, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

/// A transport that notes the order in which calls arrive.
pub struct InOrder<T> {
    transport: T,
    line: Arc<Line>,
}

/// The place of one call, let go of when its last clone is dropped.
#[derive(Clone)]
pub struct Arrival(Arc<Place>);

struct Place {
    number: u64,
    line: Arc<Line>,
}

struct Line {
    arrived: Mutex<u64>,
    left: Mutex<BTreeSet<u64>>,
    /// The number of the call whose turn it is.
    turn: watch::Sender<u64>,
}

impl<T> InOrder<T> {
    /// Note the order of what `transport` receives.
    pub fn new(transport: T) -> Self {
        let line = Line {
            arrived: Mutex::new(0),
            left: Mutex::default(),
            turn: watch::Sender::new(0),
        };
        Self {
            transport,
            line: Arc::new(line),
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for InOrder<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut message = self.transport.receive().await?;
        if let JsonRpcMessage::Request(request) = &mut message
            && matches!(request.request, ClientRequest::CallToolRequest(_))
        {
            request.request.extensions_mut().insert(self.line.arrive());
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

impl Line {
    fn arrive(self: &Arc<Self>) -> Arrival {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *arrived;
        *arrived += 1;
        Arrival(Arc::new(Place {
            number,
            line: Arc::clone(self),
        }))
    }
}

impl Arrival {
    /// Wait until every call that arrived earlier has let go of its place.
    pub async fn turn(&self) {
        let mut turn = self.0.line.turn.subscribe();
        // The line lives as long as this place, so the wait cannot fail.
        let _ = turn.wait_for(|turn| *turn >= self.0.number).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut left = self
            .line
            .left
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        left.insert(self.number);
        self.line.turn.send_modify(|turn| {
            while left.remove(turn) {
                *turn += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn each_waits_for_all_before_it_and_a_dropped_one_holds_nobody_up() {
        let line = InOrder::new(()).line;
        let [first, second, third] = [line.arrive(), line.arrive(), line.arrive()];
        assert!(first.turn().now_or_never().is_some());
        assert!(second.turn().now_or_never().is_none());
        drop(second);
        assert!(
            third.turn().now_or_never().is_none(),
            "the first has not let go"
        );
        let clone = first.clone();
        drop(first);
        assert!(
            third.turn().now_or_never().is_none(),
            "a clone of the first has not let go"
        );
        drop(clone);
        assert!(third.turn().now_or_never().is_some());
    }
}
