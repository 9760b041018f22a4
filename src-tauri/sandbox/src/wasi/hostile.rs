//! The guest's side of the door and its files, driven by bytes of anyone's making: what the fuzzer
//! calls, and what repeats here the inputs that it has found worth keeping.
#![allow(
    unreachable_pub,
    reason = "the fuzzer calls it from outside of its own crate"
)]

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::door::{Door, Output, Woken};
use super::files::{Files, FilesLimits, Open, ROOT_DESCRIPTOR, Refusal, Whence};
use crate::frame::{self, Frame, Kind};

/// Bytes as a source of choices.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// Mostly small, and as large as can be now and then.
    fn number(&mut self) -> u64 {
        let byte = self.byte();
        match byte {
            0..200 => u64::from(byte),
            200..250 => u64::from(byte - 199) << 13,
            _ => u64::MAX >> (255 - byte),
        }
    }
}

/// What reaches the host is whole frames of kinds that a guest may send, one greeting at most, calls
/// under numbers that were never used; what reaches the guest are answers to calls that it made.
pub fn door(data: &[u8]) {
    let sent = Arc::new(Mutex::new(BytesMut::new()));
    let door = Door::new(
        Box::new(Sent(sent.clone())),
        Duration::from_secs(1),
        Box::new(|| ()),
    );
    let past = Instant::now();
    let mut asked = Vec::new();
    let mut heard = Heard::default();
    let mut choices = Choices(data);
    while let Some(what) = choices.next() {
        match what % 16 {
            0..4 => {
                let kind =
                    [Kind::Run, Kind::Reply, Kind::Interrupt, Kind::Reply][usize::from(what % 4)];
                let frame = Frame {
                    kind,
                    id: choices.number(),
                    payload: Bytes::copy_from_slice(choices.bytes()),
                };
                assert!(door.deliver(frame).is_ok());
            }
            4..9 => {
                let Some(kind) = Kind::of_guest(choices.byte() % 32) else {
                    continue;
                };
                let id = choices.number();
                if kind == Kind::Call {
                    asked.push(id);
                }
                assert!(door.send(kind, id, choices.bytes()).is_ok());
            }
            9 => assert!(door.print(Kind::Stdout, choices.bytes()).is_ok()),
            10 => {
                let woken = door.receive(Some(past));
                let taken = door.take();
                if let (Woken::Frame(header), Some(frame)) = (woken, taken) {
                    assert_eq!(
                        (header.kind, header.id, header.length),
                        (frame.kind, frame.id, frame.payload.len())
                    );
                    if frame.kind == Kind::Reply {
                        assert!(asked.contains(&frame.id));
                    }
                }
            }
            11 => {
                door.wait_for_turn(Some(past));
                door.pending();
            }
            12 => {
                door.end_turn();
            }
            13 => door.heeded(),
            14 => {
                let active = door.active();
                assert_eq!(door.abandon().ok(), Some(active));
            }
            _ => {
                door.sleep(past);
                assert!(door.end_run(choices.number(), choices.bytes()).is_ok());
            }
        }
        heard.take_in(&sent);
    }
}

struct Sent(Arc<Mutex<BytesMut>>);

impl Output for Sent {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.extend_from_slice(bytes);
        Ok(())
    }
}

/// What the host has heard.
#[derive(Default)]
struct Heard {
    greetings: usize,
    calls: u64,
}

impl Heard {
    fn take_in(&mut self, sent: &Mutex<BytesMut>) {
        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(frame) = frame::decode(&mut sent).unwrap_or_else(|error| panic!("{error}")) {
            match frame.kind {
                Kind::Hello => self.greetings += 1,
                Kind::Call => {
                    assert_eq!(frame.id, self.calls + 1);
                    self.calls += 1;
                }
                Kind::CancelCall => assert!(frame.id <= self.calls),
                _ => {}
            }
        }
        assert!(sent.is_empty() && self.greetings <= 1);
    }
}

const TMP_BYTES_MAX: u64 = 64 << 10;
const WORKSPACE_BYTES_MAX: u64 = 256 << 10;
const DESCRIPTORS_MAX: usize = 12;

const PATHS: [&str; 16] = [
    "tmp/a",
    "tmp/b",
    "tmp/d",
    "tmp/d/e",
    "tmp/d/e/f",
    "workspace",
    "workspace/w",
    "/workspace/d",
    "..",
    "tmp/../../tmp/a",
    "lib/fixed",
    "dev/null",
    "tmp/./a/",
    "",
    "tmp",
    "lib",
];

/// The bounds hold, what is refused changes no count, and a copy is independent.
pub fn files(data: &[u8]) {
    let mut files = Files::new(FilesLimits {
        tmp_bytes_max: TMP_BYTES_MAX,
        workspace_bytes_max: WORKSPACE_BYTES_MAX,
        descriptors_max: DESCRIPTORS_MAX,
        memory_bytes_max: TMP_BYTES_MAX + WORKSPACE_BYTES_MAX / 2,
    });
    files.fixed("lib", "fixed", b"as it was".to_vec());
    let mut kept = None;
    let mut choices = Choices(data);
    while let Some(what) = choices.next() {
        let before = files.memory_bytes();
        if let Err(Refusal::NoSpace | Refusal::ReadOnly) = step(&mut files, what, &mut choices) {
            // A write may be cut short by the bound; what was written then counts.
            assert!(files.memory_bytes() >= before || what % 20 < 4);
        }
        assert!(files.memory_bytes() <= TMP_BYTES_MAX + WORKSPACE_BYTES_MAX / 2);
        if what == 255 {
            kept = Some((files.clone(), files.memory_bytes()));
        }
    }
    if let Some((kept, bytes)) = kept {
        assert_eq!(kept.memory_bytes(), bytes);
    }
    let mut buffer = [0; 9];
    let how = Open {
        read: true,
        ..Open::default()
    };
    for fd in 4..64 {
        let _ = files.close(fd);
    }
    let fd = files.open(ROOT_DESCRIPTOR, "lib/fixed", how);
    let count = fd.and_then(|fd| files.read(fd, &mut buffer));
    assert_eq!((count, &buffer), (Ok(9), b"as it was"));
}

fn step(files: &mut Files, what: u8, choices: &mut Choices<'_>) -> Result<(), Refusal> {
    let fd = u32::from(choices.byte()) % (DESCRIPTORS_MAX as u32 + 2);
    // Mostly from the root, else from whatever is open there.
    let folder = if what >= 128 { fd } else { ROOT_DESCRIPTOR };
    let mut path = || PATHS[usize::from(choices.byte()) % PATHS.len()];
    match what % 20 {
        0..4 => {
            let path = path();
            let bits = choices.byte();
            let bit = |index: u8| bits >> index & 1 == 1;
            let how = Open {
                follow: bit(0),
                create: bit(1),
                exclusive: bit(2),
                truncate: bit(3),
                folder: bit(4),
                read: bit(5),
                write: bit(6),
                append: bit(7),
            };
            let fd = files.open(folder, path, how)?;
            assert!((fd as usize) < DESCRIPTORS_MAX);
        }
        4 => {
            files.write(fd, choices.bytes())?;
        }
        5 => {
            let offset = choices.number();
            files.write_at(fd, choices.bytes(), offset)?;
        }
        6 => {
            let mut out = vec![0; usize::from(choices.byte())];
            let count = files.read(fd, &mut out)?;
            assert!(count <= out.len());
        }
        7 => {
            let offset = choices.number();
            let mut out = vec![0; usize::from(choices.byte())];
            files.read_at(fd, &mut out, offset)?;
        }
        8 => {
            let whence =
                [Whence::Start, Whence::Here, Whence::End][usize::from(choices.byte()) % 3];
            files.seek(fd, choices.number().cast_signed(), whence)?;
        }
        9 => files.set_size(fd, choices.number())?,
        // A guest may let go of the root, and then has nothing left to ask for.
        10 | 11 if fd == ROOT_DESCRIPTOR => {}
        10 => files.close(fd)?,
        11 => {
            let to = u32::from(choices.byte()) % 16;
            if to != ROOT_DESCRIPTOR {
                files.renumber(fd, to)?;
            }
        }
        12 => files.make_folder(folder, path())?,
        13 => files.remove_folder(folder, path())?,
        14 => files.remove_file(folder, path())?,
        15 => {
            let target = path();
            files.make_link(target, folder, path())?;
        }
        16 => {
            let from = path();
            files.link(folder, from, what >= 64, ROOT_DESCRIPTOR, path())?;
        }
        17 => {
            let from = path();
            files.rename(folder, from, ROOT_DESCRIPTOR, path())?;
        }
        18 => {
            let path = path();
            files.stat_path(folder, path, what >= 64)?;
            files.read_link(folder, path)?;
        }
        _ => {
            files.stat_descriptor(fd)?;
            let mut left = choices.byte();
            files.list(fd, choices.number(), |_| {
                left = left.saturating_sub(1);
                left > 0
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]
#[path = "../../../../tests/sandbox/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::corpus::each;

    #[test]
    fn what_the_fuzzer_kept_for_the_door() {
        each("door", super::door);
    }

    #[test]
    fn what_the_fuzzer_kept_for_the_files() {
        each("files", super::files);
    }
}
