//! The system calls that CPython's C library makes (WASI preview 1), answered from memory.
//!
//! Each is a name, numbers and places in linear memory; what they do is in `files` and `door`.
//! There are no sockets, no environment, no arguments, and of the machine only clock and
//! randomness. A place outside of the memory is refused, as is every call that has no use here.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime::{Caller, Error, Linker};

use super::files::{Kind, Open, ROOT_DESCRIPTOR, Refusal, Stat, Target, Whence};
use super::machine::{Ended, State};
use crate::frame;

const MODULE: &str = "wasi_snapshot_preview1";

/// WASI's error numbers, as far as they are used.
mod number {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const BADF: i32 = 8;
    pub(super) const EXIST: i32 = 20;
    pub(super) const FAULT: i32 = 21;
    pub(super) const FBIG: i32 = 22;
    pub(super) const ILSEQ: i32 = 25;
    pub(super) const INVAL: i32 = 28;
    pub(super) const IO: i32 = 29;
    pub(super) const ISDIR: i32 = 31;
    pub(super) const LOOP: i32 = 32;
    pub(super) const MFILE: i32 = 33;
    pub(super) const NAMETOOLONG: i32 = 37;
    pub(super) const NOENT: i32 = 44;
    pub(super) const NOSPC: i32 = 51;
    pub(super) const NOSYS: i32 = 52;
    pub(super) const NOTDIR: i32 = 54;
    pub(super) const NOTEMPTY: i32 = 55;
    pub(super) const NOTSOCK: i32 = 57;
    pub(super) const NOTSUP: i32 = 58;
    pub(super) const PERM: i32 = 63;
    pub(super) const ROFS: i32 = 69;
    pub(super) const SPIPE: i32 = 70;
    pub(super) const XDEV: i32 = 75;
}

const RIGHT_READ: u64 = 1 << 1;
const RIGHT_WRITE: u64 = 1 << 6;
const APPEND: i32 = 1;
/// Bytes of randomness or text handled in one piece; a guest asks for the rest by itself.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Subscriptions of one poll: the C library makes one, `select` a few.
const SUBSCRIPTIONS_MAX: u32 = 1024;
/// Scattered buffers of one read or write; POSIX's usual bound.
const VECTORS_MAX: u32 = 1024;

/// A refusal by number, or the end of the guest.
enum Failure {
    Number(i32),
    Ends(Error),
}

type Answer<T> = Result<T, Failure>;

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Number(match refusal {
            Refusal::BadDescriptor => number::BADF,
            Refusal::Exists => number::EXIST,
            Refusal::FileTooBig => number::FBIG,
            Refusal::Invalid => number::INVAL,
            Refusal::Io => number::IO,
            Refusal::IsFolder => number::ISDIR,
            Refusal::Loop => number::LOOP,
            Refusal::NameTooLong => number::NAMETOOLONG,
            Refusal::NoEntry => number::NOENT,
            Refusal::NoSpace => number::NOSPC,
            Refusal::NotEmpty => number::NOTEMPTY,
            Refusal::NotFolder => number::NOTDIR,
            Refusal::NotPermitted => number::PERM,
            Refusal::ReadOnly => number::ROFS,
            Refusal::NotSeekable => number::SPIPE,
            Refusal::TooManyDescriptors => number::MFILE,
            Refusal::CrossesAreas => number::XDEV,
        })
    }
}

/// What a call works on.
struct Call<'a> {
    memory: &'a mut [u8],
    state: &'a mut State,
}

/// Run `work` with the memory and the state, and turn what comes of it into a number.
fn answer(
    mut caller: Caller<'_, State>,
    work: impl FnOnce(&mut Call<'_>) -> Answer<()>,
) -> Result<i32, Error> {
    let Some(memory) = caller.data().memory else {
        return Ok(number::FAULT);
    };
    let (memory, state) = memory.data_and_store_mut(&mut caller);
    state.files.now = state.clock.now();
    match work(&mut Call { memory, state }) {
        Ok(()) => Ok(number::SUCCESS),
        Err(Failure::Number(number)) => Ok(number),
        Err(Failure::Ends(error)) => Err(error),
    }
}

fn refuse<T>(number: i32) -> Answer<T> {
    Err(Failure::Number(number))
}

impl Call<'_> {
    fn bytes(&self, at: u32, length: u32) -> Answer<&[u8]> {
        let at = at as usize;
        let end = at.checked_add(length as usize);
        end.and_then(|end| self.memory.get(at..end))
            .ok_or(Failure::Number(number::FAULT))
    }

    fn bytes_mut(&mut self, at: u32, length: u32) -> Answer<&mut [u8]> {
        let at = at as usize;
        let end = at.checked_add(length as usize);
        end.and_then(|end| self.memory.get_mut(at..end))
            .ok_or(Failure::Number(number::FAULT))
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> Answer<()> {
        self.bytes_mut(at, bytes.len() as u32)?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn put_u32(&mut self, at: u32, value: u32) -> Answer<()> {
        self.put(at, &value.to_le_bytes())
    }

    fn put_u64(&mut self, at: u32, value: u64) -> Answer<()> {
        self.put(at, &value.to_le_bytes())
    }

    fn u32(&self, at: u32) -> Answer<u32> {
        let bytes = self.bytes(at, 4)?;
        Ok(bytes.try_into().map_or(0, u32::from_le_bytes))
    }

    fn u64(&self, at: u32) -> Answer<u64> {
        let bytes = self.bytes(at, 8)?;
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    fn path(&self, at: u32, length: u32) -> Answer<String> {
        match std::str::from_utf8(self.bytes(at, length)?) {
            Ok(path) if path.contains('\0') => refuse(number::INVAL),
            Ok(path) => Ok(path.to_owned()),
            Err(_) => refuse(number::ILSEQ),
        }
    }

    /// The buffers of a scattered read or write, checked to be inside the memory.
    fn vectors(&self, at: u32, count: u32) -> Answer<Vec<(u32, u32)>> {
        if count > VECTORS_MAX {
            return refuse(number::INVAL);
        }
        (0..count)
            .map(|index| {
                let place = at
                    .checked_add(index * 8)
                    .ok_or(Failure::Number(number::FAULT))?;
                let (start, length) = (self.u32(place)?, self.u32(place.wrapping_add(4))?);
                self.bytes(start, length)?;
                Ok((start, length))
            })
            .collect()
    }

    fn read(&mut self, fd: u32, at: u32, count: u32, offset: Option<u64>, read: u32) -> Answer<()> {
        let mut total = 0_u32;
        for (start, length) in self.vectors(at, count)? {
            let (from, to) = (start as usize, start as usize + length as usize);
            let out = &mut self.memory[from..to];
            let got = match offset {
                Some(offset) => {
                    self.state
                        .files
                        .read_at(fd, out, offset.saturating_add(u64::from(total)))
                }
                None => self.state.files.read(fd, out),
            };
            match got {
                Ok(got) => {
                    total += got as u32;
                    if got < length as usize {
                        break;
                    }
                }
                Err(refusal) if total == 0 => return Err(refusal.into()),
                Err(_) => break,
            }
        }
        self.put_u32(read, total)
    }

    fn write(
        &mut self,
        fd: u32,
        at: u32,
        count: u32,
        offset: Option<u64>,
        written: u32,
    ) -> Answer<()> {
        let target = self.state.files.descriptor(fd)?.target;
        let mut total = 0_u32;
        for (start, length) in self.vectors(at, count)? {
            let (from, to) = (start as usize, start as usize + length as usize);
            let bytes = &self.memory[from..to];
            let got = match (target, offset) {
                (Target::Output(stream), None) => {
                    let bytes = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
                    let kind = if stream == 1 {
                        frame::Kind::Stdout
                    } else {
                        frame::Kind::Stderr
                    };
                    self.state.print(kind, bytes).map_err(Failure::Ends)?;
                    Ok(bytes.len())
                }
                (_, Some(offset)) => {
                    self.state
                        .files
                        .write_at(fd, bytes, offset.saturating_add(u64::from(total)))
                }
                (_, None) => self.state.files.write(fd, bytes),
            };
            match got {
                Ok(got) => {
                    total += got as u32;
                    if got < length as usize {
                        break;
                    }
                }
                Err(refusal) if total == 0 => return Err(refusal.into()),
                Err(_) => break,
            }
        }
        self.put_u32(written, total)
    }

    fn put_stat(&mut self, at: u32, stat: &Stat) -> Answer<()> {
        let mut bytes = [0; 64];
        bytes[0..8].copy_from_slice(&1_u64.to_le_bytes());
        bytes[8..16].copy_from_slice(&stat.node.to_le_bytes());
        bytes[16] = file_type(stat.kind);
        bytes[24..32].copy_from_slice(&stat.links.to_le_bytes());
        bytes[32..40].copy_from_slice(&stat.size.to_le_bytes());
        bytes[40..48].copy_from_slice(&stat.accessed_at.to_le_bytes());
        bytes[48..56].copy_from_slice(&stat.modified_at.to_le_bytes());
        bytes[56..64].copy_from_slice(&stat.changed_at.to_le_bytes());
        self.put(at, &bytes)
    }

    /// The two time stamps that `flags` ask for.
    fn times(&self, accessed: u64, modified: u64, flags: i32) -> (Option<u64>, Option<u64>) {
        let now = self.state.files.now;
        let one = |value: u64, given: i32, is_now: i32| {
            if flags & is_now != 0 {
                Some(now)
            } else {
                (flags & given != 0).then_some(value)
            }
        };
        (one(accessed, 1, 2), one(modified, 4, 8))
    }

    /// Wait for the first clock of a poll; files are always ready.
    fn poll(&mut self, subscriptions: u32, events: u32, count: u32, happened: u32) -> Answer<()> {
        if count == 0 || count > SUBSCRIPTIONS_MAX {
            return refuse(number::INVAL);
        }
        let mut clocks = Vec::new();
        let mut ready = Vec::new();
        for index in 0..count {
            let at = subscriptions
                .checked_add(index * 48)
                .ok_or(Failure::Number(number::FAULT))?;
            let user = self.u64(at)?;
            let tag = self.bytes(at.wrapping_add(8), 1)?[0];
            if tag != 0 {
                let fd = self.u32(at.wrapping_add(16))?;
                let known = self.state.files.descriptor(fd).is_ok();
                ready.push((
                    user,
                    tag,
                    if known { number::SUCCESS } else { number::BADF },
                ));
                continue;
            }
            let (clock, timeout) = (
                self.u32(at.wrapping_add(16))?,
                self.u64(at.wrapping_add(24))?,
            );
            let absolute = self.u32(at.wrapping_add(40))? & 1 != 0;
            let now = if clock == 0 {
                self.state.clock.now()
            } else {
                self.state.clock.elapsed()
            };
            let wait = if absolute {
                timeout.saturating_sub(now)
            } else {
                timeout
            };
            clocks.push((wait, user));
        }
        if ready.is_empty()
            && let Some(&(wait, user)) = clocks.iter().min()
        {
            self.state
                .sleep(Duration::from_nanos(wait), self.memory)
                .map_err(Failure::Ends)?;
            ready.push((user, 0, number::SUCCESS));
        }
        for (index, (user, tag, error)) in ready.iter().enumerate() {
            let mut event = [0; 32];
            event[0..8].copy_from_slice(&user.to_le_bytes());
            event[8..10].copy_from_slice(&(*error as u16).to_le_bytes());
            event[10] = *tag;
            self.put(events.wrapping_add(index as u32 * 32), &event)?;
        }
        self.put_u32(happened, ready.len() as u32)
    }

    fn list(&mut self, fd: u32, at: u32, length: u32, cookie: u64, used: u32) -> Answer<()> {
        let mut bytes = Vec::new();
        let room = length as usize;
        self.state.files.list(fd, cookie, |entry| {
            let name = entry.name.as_bytes();
            bytes.extend_from_slice(&entry.cookie.to_le_bytes());
            bytes.extend_from_slice(&(entry.node + 1).to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&[file_type(entry.kind), 0, 0, 0]);
            bytes.extend_from_slice(name);
            bytes.len() < room
        })?;
        // An entry cut off at the end tells that there is more.
        bytes.truncate(room);
        self.put(at, &bytes)?;
        self.put_u32(used, bytes.len() as u32)
    }
}

fn file_type(kind: Kind) -> u8 {
    match kind {
        Kind::Device => 2,
        Kind::Folder => 3,
        Kind::File => 4,
        Kind::Link => 7,
    }
}

/// Give the guest all of these calls.
pub(super) fn add_to(linker: &mut Linker<State>) -> Result<(), Error> {
    nothing_there(linker)?;
    machine(linker)?;
    descriptors(linker)?;
    paths(linker)
}

/// Arguments, environment, sockets: none.
fn nothing_there(linker: &mut Linker<State>) -> Result<(), Error> {
    for (sizes, get) in [
        ("args_sizes_get", "args_get"),
        ("environ_sizes_get", "environ_get"),
    ] {
        linker.func_wrap(
            MODULE,
            sizes,
            |caller: Caller<'_, State>, count: u32, bytes: u32| {
                answer(caller, |call| {
                    call.put_u32(count, 0)?;
                    call.put_u32(bytes, 0)
                })
            },
        )?;
        linker.func_wrap(MODULE, get, |_: u32, _: u32| number::SUCCESS)?;
    }
    linker.func_wrap(MODULE, "sock_accept", |_: u32, _: i32, _: u32| {
        number::NOTSOCK
    })?;
    linker.func_wrap(
        MODULE,
        "sock_recv",
        |_: u32, _: u32, _: u32, _: i32, _: u32, _: u32| number::NOTSOCK,
    )?;
    linker.func_wrap(
        MODULE,
        "sock_send",
        |_: u32, _: u32, _: u32, _: i32, _: u32| number::NOTSOCK,
    )?;
    linker.func_wrap(MODULE, "sock_shutdown", |_: u32, _: i32| number::NOTSOCK)?;
    linker.func_wrap(MODULE, "proc_raise", |_: i32| number::NOSYS)?;
    Ok(())
}

/// Clock, randomness, waiting, the end.
fn machine(linker: &mut Linker<State>) -> Result<(), Error> {
    linker.func_wrap(
        MODULE,
        "clock_res_get",
        |caller: Caller<'_, State>, clock: u32, at: u32| {
            answer(caller, |call| match clock {
                0..=3 => call.put_u64(at, 1),
                _ => refuse(number::INVAL),
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |caller: Caller<'_, State>, clock: u32, _precision: u64, at: u32| {
            answer(caller, |call| match clock {
                0 => call.put_u64(at, call.state.clock.now()),
                // CPU time is not told: it would be another program's business too.
                1..=3 => call.put_u64(at, call.state.clock.elapsed()),
                _ => refuse(number::INVAL),
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "random_get",
        |caller: Caller<'_, State>, at: u32, length: u32| {
            answer(caller, |call| {
                let fixed = call.state.clock.is_fixed();
                let out = call.bytes_mut(at, length)?;
                if fixed {
                    out.fill(7);
                    return Ok(());
                }
                for piece in out.chunks_mut(PIECE_BYTES_MAX) {
                    getrandom::fill(piece).map_err(|_| Failure::Number(number::IO))?;
                }
                Ok(())
            })
        },
    )?;
    linker.func_wrap(MODULE, "sched_yield", || number::SUCCESS)?;
    linker.func_wrap(MODULE, "proc_exit", |code: i32| -> Result<(), Error> {
        Err(Error::new(Ended::Exited(code)))
    })?;
    linker.func_wrap(
        MODULE,
        "poll_oneoff",
        |caller: Caller<'_, State>, subscriptions: u32, events: u32, count: u32, happened: u32| {
            answer(caller, |call| {
                call.poll(subscriptions, events, count, happened)
            })
        },
    )?;
    Ok(())
}

fn descriptors(linker: &mut Linker<State>) -> Result<(), Error> {
    linker.func_wrap(
        MODULE,
        "fd_advise",
        |caller: Caller<'_, State>, fd: u32, _: u64, _: u64, _: i32| {
            answer(caller, |call| {
                Ok(call.state.files.descriptor(fd).map(|_| ())?)
            })
        },
    )?;
    linker.func_wrap(MODULE, "fd_allocate", |_: u32, _: u64, _: u64| {
        number::NOTSUP
    })?;
    linker.func_wrap(MODULE, "fd_close", |caller: Caller<'_, State>, fd: u32| {
        answer(caller, |call| Ok(call.state.files.close(fd)?))
    })?;
    for name in ["fd_sync", "fd_datasync"] {
        linker.func_wrap(MODULE, name, |caller: Caller<'_, State>, fd: u32| {
            answer(caller, |call| {
                Ok(call.state.files.descriptor(fd).map(|_| ())?)
            })
        })?;
    }
    linker.func_wrap(
        MODULE,
        "fd_fdstat_get",
        |caller: Caller<'_, State>, fd: u32, at: u32| {
            answer(caller, |call| {
                let descriptor = call.state.files.descriptor(fd)?;
                let kind = call.state.files.stat_descriptor(fd)?.kind;
                let mut bytes = [0; 24];
                bytes[0] = file_type(kind);
                bytes[2] = u8::from(descriptor.append);
                let mut rights = !(RIGHT_READ | RIGHT_WRITE);
                if descriptor.read {
                    rights |= RIGHT_READ;
                }
                if descriptor.write {
                    rights |= RIGHT_WRITE;
                }
                if kind == Kind::Device {
                    // Neither seek nor tell: that is how the C library knows a terminal or a pipe.
                    rights &= !((1 << 2) | (1 << 5));
                }
                bytes[8..16].copy_from_slice(&rights.to_le_bytes());
                bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
                call.put(at, &bytes)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_set_flags",
        |caller: Caller<'_, State>, fd: u32, flags: i32| {
            answer(caller, |call| {
                Ok(call.state.files.set_append(fd, flags & APPEND != 0)?)
            })
        },
    )?;
    linker.func_wrap(MODULE, "fd_fdstat_set_rights", |_: u32, _: u64, _: u64| {
        number::NOTSUP
    })?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_get",
        |caller: Caller<'_, State>, fd: u32, at: u32| {
            answer(caller, |call| {
                let stat = call.state.files.stat_descriptor(fd)?;
                call.put_stat(at, &stat)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_set_size",
        |caller: Caller<'_, State>, fd: u32, size: u64| {
            answer(caller, |call| Ok(call.state.files.set_size(fd, size)?))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_filestat_set_times",
        |caller: Caller<'_, State>, fd: u32, accessed: u64, modified: u64, flags: i32| {
            answer(caller, |call| {
                let (accessed, modified) = call.times(accessed, modified, flags);
                Ok(call
                    .state
                    .files
                    .set_times_descriptor(fd, accessed, modified)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_read",
        |caller: Caller<'_, State>, fd: u32, at: u32, count: u32, read: u32| {
            answer(caller, |call| call.read(fd, at, count, None, read))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_pread",
        |caller: Caller<'_, State>, fd: u32, at: u32, count: u32, offset: u64, read: u32| {
            answer(caller, |call| call.read(fd, at, count, Some(offset), read))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_write",
        |caller: Caller<'_, State>, fd: u32, at: u32, count: u32, written: u32| {
            answer(caller, |call| call.write(fd, at, count, None, written))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_pwrite",
        |caller: Caller<'_, State>, fd: u32, at: u32, count: u32, offset: u64, written: u32| {
            answer(caller, |call| {
                call.write(fd, at, count, Some(offset), written)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_prestat_get",
        |caller: Caller<'_, State>, fd: u32, at: u32| {
            answer(caller, |call| match fd {
                ROOT_DESCRIPTOR => {
                    call.put_u32(at, 0)?;
                    call.put_u32(at.wrapping_add(4), 1)
                }
                _ => refuse(number::BADF),
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_prestat_dir_name",
        |caller: Caller<'_, State>, fd: u32, at: u32, length: u32| {
            answer(caller, |call| match fd {
                ROOT_DESCRIPTOR if length >= 1 => call.put(at, b"/"),
                ROOT_DESCRIPTOR => refuse(number::NAMETOOLONG),
                _ => refuse(number::BADF),
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_readdir",
        |caller: Caller<'_, State>, fd: u32, at: u32, length: u32, cookie: u64, used: u32| {
            answer(caller, |call| call.list(fd, at, length, cookie, used))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_renumber",
        |caller: Caller<'_, State>, from: u32, to: u32| {
            answer(caller, |call| Ok(call.state.files.renumber(from, to)?))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |caller: Caller<'_, State>, fd: u32, delta: i64, whence: i32, at: u32| {
            answer(caller, |call| {
                let whence = match whence {
                    0 => Whence::Start,
                    1 => Whence::Here,
                    2 => Whence::End,
                    _ => return refuse(number::INVAL),
                };
                let offset = call.state.files.seek(fd, delta, whence)?;
                call.put_u64(at, offset)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_tell",
        |caller: Caller<'_, State>, fd: u32, at: u32| {
            answer(caller, |call| {
                let offset = call.state.files.seek(fd, 0, Whence::Here)?;
                call.put_u64(at, offset)
            })
        },
    )?;
    Ok(())
}

fn paths(linker: &mut Linker<State>) -> Result<(), Error> {
    linker.func_wrap(
        MODULE,
        "path_create_directory",
        |caller: Caller<'_, State>, fd: u32, at: u32, length: u32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                Ok(call.state.files.make_folder(fd, &path)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_filestat_get",
        |caller: Caller<'_, State>, fd: u32, lookup: i32, at: u32, length: u32, out: u32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                let stat = call.state.files.stat_path(fd, &path, lookup & 1 != 0)?;
                call.put_stat(out, &stat)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_filestat_set_times",
        |caller: Caller<'_, State>,
         fd: u32,
         lookup: i32,
         at: u32,
         length: u32,
         accessed: u64,
         modified: u64,
         flags: i32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                let (accessed, modified) = call.times(accessed, modified, flags);
                let follow = lookup & 1 != 0;
                let files = &mut call.state.files;
                Ok(files.set_times_path(fd, &path, follow, accessed, modified)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_link",
        |caller: Caller<'_, State>,
         from_fd: u32,
         lookup: i32,
         from: u32,
         from_length: u32,
         to_fd: u32,
         to: u32,
         to_length: u32| {
            answer(caller, |call| {
                let from = call.path(from, from_length)?;
                let to = call.path(to, to_length)?;
                Ok(call
                    .state
                    .files
                    .link(from_fd, &from, lookup & 1 != 0, to_fd, &to)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_open",
        |caller: Caller<'_, State>,
         fd: u32,
         lookup: i32,
         at: u32,
         length: u32,
         how: i32,
         rights: u64,
         _inherited: u64,
         flags: i32,
         out: u32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                let how = Open {
                    follow: lookup & 1 != 0,
                    create: how & 1 != 0,
                    folder: how & 2 != 0,
                    exclusive: how & 4 != 0,
                    truncate: how & 8 != 0,
                    read: rights & RIGHT_READ != 0,
                    write: rights & RIGHT_WRITE != 0,
                    append: flags & APPEND != 0,
                };
                let opened = call.state.files.open(fd, &path, how)?;
                call.put_u32(out, opened)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_readlink",
        |caller: Caller<'_, State>,
         fd: u32,
         at: u32,
         length: u32,
         out: u32,
         room: u32,
         used: u32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                let target = call.state.files.read_link(fd, &path)?;
                let bytes = &target.as_bytes()[..target.len().min(room as usize)];
                call.put(out, bytes)?;
                call.put_u32(used, bytes.len() as u32)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_remove_directory",
        |caller: Caller<'_, State>, fd: u32, at: u32, length: u32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                Ok(call.state.files.remove_folder(fd, &path)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_unlink_file",
        |caller: Caller<'_, State>, fd: u32, at: u32, length: u32| {
            answer(caller, |call| {
                let path = call.path(at, length)?;
                Ok(call.state.files.remove_file(fd, &path)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_rename",
        |caller: Caller<'_, State>,
         from_fd: u32,
         from: u32,
         from_length: u32,
         to_fd: u32,
         to: u32,
         to_length: u32| {
            answer(caller, |call| {
                let from = call.path(from, from_length)?;
                let to = call.path(to, to_length)?;
                Ok(call.state.files.rename(from_fd, &from, to_fd, &to)?)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "path_symlink",
        |caller: Caller<'_, State>,
         target: u32,
         target_length: u32,
         fd: u32,
         at: u32,
         length: u32| {
            answer(caller, |call| {
                let target = call.path(target, target_length)?;
                let path = call.path(at, length)?;
                Ok(call.state.files.make_link(&target, fd, &path)?)
            })
        },
    )?;
    Ok(())
}

/// What time it is in the sandbox.
pub(super) enum Clock {
    /// The machine's.
    Real { started: Instant },
    /// Stands still: for a snapshot that is the same whenever it is made.
    Fixed,
}

impl Clock {
    pub(super) fn real() -> Self {
        Self::Real {
            started: Instant::now(),
        }
    }

    fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed)
    }

    /// Nanoseconds since 1970.
    fn now(&self) -> u64 {
        match self {
            Self::Real { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            Self::Fixed => 1_700_000_000_000_000_000,
        }
    }

    /// Nanoseconds since the sandbox started, and an hour: programs like to subtract.
    fn elapsed(&self) -> u64 {
        const HOUR: u64 = 3_600_000_000_000;
        match self {
            Self::Real { started } => HOUR + started.elapsed().as_nanos() as u64,
            Self::Fixed => HOUR,
        }
    }
}
