//! A guest that is none of ours: what it sends costs the host neither its memory nor its wits.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use runbridge_sandbox::frame::{self, Kind};
use runbridge_sandbox::{
    CallError, CallHandler, Guest, GuestExit, Interpreter, Mounting, OutputSink, RunEnd,
    RunOutcome, RunRequest, Stream,
};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::corpus::each;

#[path = "../../src-tauri/sandbox/fuzz/src/guest.rs"]
mod fuzzed;

#[test]
fn what_the_fuzzer_kept_for_the_frames() {
    each("frames", fuzzed::frames);
}

#[test]
fn what_the_fuzzer_kept_for_the_guest() {
    each("guest", fuzzed::guest);
}

const RUN: u64 = 1;

/// Run something on a guest that sends `pieces` and then the end of the run.
async fn sent(pieces: impl Iterator<Item = BytesMut> + Send + 'static) -> RunOutcome {
    let (sender, output) = tokio::sync::mpsc::channel(4);
    tokio::spawn(async move {
        let mut first = BytesMut::new();
        frame::encode(Kind::Hello, 0, br#"{"python":"3","uid":1}"#, &mut first);
        let mut last = BytesMut::new();
        frame::encode(Kind::Done, RUN, b"{}", &mut last);
        for piece in std::iter::once(first).chain(pieces).chain([last]) {
            if sender.send(Bytes::from(piece)).await.is_err() {
                return;
            }
        }
    });
    let guest = Guest {
        input: Box::new(tokio::io::sink()),
        output,
        end: Box::new(|_| -> BoxFuture<'static, GuestExit> {
            Box::pin(std::future::ready(GuestExit::default()))
        }),
        gauge: None,
        mounting: Mounting::Never,
    };
    let within = Duration::from_mins(1);
    let mut interpreter = Interpreter::attach(guest, Box::new(Deaf), within)
        .await
        .unwrap();
    let request = RunRequest {
        id: RUN,
        code: "1".to_owned(),
        file_name: "<run 1>".to_owned(),
        context: serde_json::Value::Null,
        run_ms_max: 120_000,
        grace_ms_max: 1_000,
        images_bytes_max: 100,
    };
    let outcome = interpreter
        .run(request, Arc::new(Silent), CancellationToken::new())
        .await;
    assert_eq!(outcome.end, RunEnd::Finished);
    outcome
}

struct Deaf;

impl OutputSink for Deaf {
    fn write(&mut self, _run: u64, _stream: Stream, _bytes: &[u8]) {}
}

/// Leaves every call without an answer.
struct Silent;

impl CallHandler for Silent {
    fn call(
        self: Arc<Self>,
        _method: String,
        _params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> {
        Box::pin(std::future::pending())
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn calls_that_are_made_and_cancelled_without_end_take_no_memory() {
    let before = peak_kib();
    sent((0..200_u64).map(|piece| {
        let mut bytes = BytesMut::new();
        for id in piece * 500..(piece + 1) * 500 {
            frame::encode(Kind::Call, id, br#"{"method":"m","params":{}}"#, &mut bytes);
            frame::encode(Kind::CancelCall, id, b"", &mut bytes);
        }
        bytes
    }))
    .await;
    let grown = peak_kib() - before;
    assert!(grown < 32 << 10, "{grown} KiB");
}

/// The most memory that this process ever had.
#[cfg(target_os = "linux")]
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

#[tokio::test]
async fn images_of_no_bytes_are_not_taken_without_end() {
    let outcome = sent((0..100_u64).map(|_| {
        let mut bytes = BytesMut::new();
        for _ in 0..100 {
            frame::encode(Kind::Display, RUN, b"\x00\x09image/png", &mut bytes);
        }
        bytes
    }))
    .await;
    assert!(outcome.images.len() < 1_000, "{}", outcome.images.len());
}
