//! Bytes as a guest's: whatever they are, the host neither fails nor does what it must not.
#![allow(
    unreachable_pub,
    reason = "a test of the sandbox has it for a module of its own"
)]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use runbridge_sandbox::frame::{self, Kind};
use runbridge_sandbox::{
    CallError, CallHandler, Guest, GuestExit, Interpreter, Mounting, OutputSink, RunRequest, Stream,
};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// Frames come out the same however the bytes are cut, and none is larger than it may be.
pub fn frames(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    let step = usize::from(cut).max(1);
    let mut whole = BytesMut::from(bytes);
    let mut pieces = BytesMut::new();
    let mut left = bytes.chunks(step);
    loop {
        let one = frame::decode(&mut whole);
        let other = loop {
            match frame::decode(&mut pieces) {
                Ok(None) => match left.next() {
                    Some(piece) => pieces.extend_from_slice(piece),
                    None => break Ok(None),
                },
                decoded => break decoded,
            }
        };
        assert_eq!(one, other);
        match one {
            Ok(Some(frame)) => {
                assert!(frame.payload.len() <= frame::PAYLOAD_BYTES_MAX);
                assert!(frame.kind as u8 >= Kind::Hello as u8);
            }
            Ok(None) | Err(_) => return,
        }
    }
}

const RUN: u64 = 7;

/// A guest that greets as it should and then sends what `data` says: the run ends, calls are handed
/// out only while it goes on, and what it shows stays within its bound.
pub fn guest(data: &[u8]) {
    thread_local! {
        static RUNTIME: RefCell<tokio::runtime::Runtime> = RefCell::new(
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap_or_else(|error| panic!("no runtime: {error}")),
        );
    }
    RUNTIME.with_borrow(|runtime| runtime.block_on(drive(sent(data))));
}

/// The pieces that the guest sends. Most are frames, so that what is behind the decoder is reached.
fn sent(data: &[u8]) -> Vec<Bytes> {
    let mut bytes = BytesMut::new();
    frame::encode(
        Kind::Hello,
        0,
        br#"{"python":"3.13.5","uid":1}"#,
        &mut bytes,
    );
    let mut pieces = vec![bytes.freeze()];
    let mut left = data;
    while let [what, id, length, rest @ ..] = left {
        let (payload, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        left = rest;
        let kinds = [
            Kind::Stdout,
            Kind::Stderr,
            Kind::Call,
            Kind::CancelCall,
            Kind::Display,
            Kind::Done,
            Kind::Hello,
            Kind::Reply,
        ];
        let mut bytes = BytesMut::new();
        match usize::from(*what) {
            index @ 0..8 => frame::encode(kinds[index], u64::from(*id), payload, &mut bytes),
            8 => {
                let call = format!(r#"{{"method":"m{id}","params":{{}}}}"#);
                frame::encode(Kind::Call, u64::from(*id), call.as_bytes(), &mut bytes);
            }
            9 => frame::encode(Kind::Done, RUN, b"{}", &mut bytes),
            10 => {
                let mut image = vec![0, 9];
                image.extend_from_slice(b"image/png");
                image.extend_from_slice(payload);
                frame::encode(Kind::Display, RUN, &image, &mut bytes);
            }
            _ => bytes.extend_from_slice(payload),
        }
        pieces.push(bytes.freeze());
    }
    pieces
}

const IMAGES_BYTES_MAX: usize = 64;

async fn drive(pieces: Vec<Bytes>) {
    let (sender, output) = tokio::sync::mpsc::channel(pieces.len() + 1);
    for piece in pieces {
        let _ = sender.try_send(piece);
    }
    drop(sender);
    let guest = Guest {
        input: Box::new(tokio::io::sink()),
        output,
        end: Box::new(|_| -> BoxFuture<'static, GuestExit> {
            Box::pin(std::future::ready(GuestExit::default()))
        }),
        gauge: None,
        mounting: Mounting::Never,
    };
    let attached = Interpreter::attach(guest, Box::new(Sink), Duration::from_secs(30)).await;
    let Ok(mut interpreter) = attached else {
        return;
    };
    let handler = Arc::new(Handler::default());
    let request = RunRequest {
        id: RUN,
        code: "1".to_owned(),
        file_name: "<run 1>".to_owned(),
        context: serde_json::Value::Null,
        run_ms_max: 10_000,
        grace_ms_max: 10_000,
        images_bytes_max: IMAGES_BYTES_MAX,
    };
    let outcome = interpreter
        .run(request, handler.clone(), CancellationToken::new())
        .await;
    let shown: usize = outcome.images.iter().map(|image| image.data.len()).sum();
    assert!(shown <= IMAGES_BYTES_MAX);
    interpreter.end().await;
    for _ in 0..100 {
        // What was ended is dropped when its turn comes.
        tokio::task::yield_now().await;
    }
    assert_eq!(handler.under_way.load(Ordering::Relaxed), 0);
}

struct Sink;

impl OutputSink for Sink {
    fn write(&mut self, _run: u64, _stream: Stream, _bytes: &[u8]) {}
}

/// Answers every other call, and leaves the rest under way until somebody drops them.
#[derive(Default)]
struct Handler {
    calls: AtomicUsize,
    under_way: Arc<AtomicUsize>,
}

struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CallHandler for Handler {
    fn call(
        self: Arc<Self>,
        method: String,
        _params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(self.under_way.clone());
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let _under_way = under_way;
            if number % 2 == 1 {
                std::future::pending::<()>().await;
            }
            Err(CallError::new("mcp", method))
        })
    }
}
