//! One CPython in one WebAssembly instance: start it, give it turns, interrupt it, copy it.
//!
//! Knows wasmtime and the exports of the module; not what Python does in a turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::{
    Caller, Config, Engine, Error, InstancePre, Linker, Memory, Module, ResourceLimiter, Store,
    StoreContextMut, TypedFunc, UpdateDeadline,
};

use super::checkpoint::{self, Checkpoint};
use super::door::{Door, Pending, Woken};
use super::files::Files;
use super::preview1::{self, Clock};
use crate::frame::{self, Kind};

/// The native stack that WebAssembly may use. CPython bounds its recursion by itself; deeper is a
/// trap. The guest's thread needs room beyond it for the host's own calls.
const STACK_BYTES_MAX: usize = 8 << 20;

/// The stack of the thread that runs a guest.
pub(super) const THREAD_STACK_BYTES: usize = STACK_BYTES_MAX + (4 << 20);

/// What a turn may take even if the limit is met when it begins, and once more when it meets it:
/// enough to compile a few lines that free things, and to report a `MemoryError`.
const RESERVE_BYTES: usize = 4 << 20;
/// What all turns together may take beyond the limit.
const RESERVE_BYTES_MAX: usize = 64 << 20;

/// Longer waits are made of several.
const DAY: Duration = Duration::from_hours(24);

/// Functions that CPython calls through a table are fixed when it is linked.
const TABLE_ELEMENTS_MAX: usize = 100_000;

/// The largest initial memory that is mapped and not copied.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// Why a guest is no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ended {
    /// It ended its process, as `os._exit` does.
    #[error("it ended itself with status {0}")]
    Exited(i32),
    /// It went on after an interrupt for longer than the grace.
    #[error("it did not stop when it was interrupted")]
    Stopped,
    /// A fault of the interpreter.
    #[error("it crashed: {0}")]
    Crashed(String),
    /// The guest's own Python failed.
    #[error("its own code failed")]
    Failed,
}

/// What the host's functions work with.
pub(super) struct State {
    pub(super) files: Files,
    pub(super) clock: Clock,
    pub(super) memory: Option<Memory>,
    door: Option<Arc<Door>>,
    mailbox: Option<Mailbox>,
    memory_bytes_max: usize,
    reserve_bytes: usize,
    reserve_given: bool,
    /// What was printed while there was no door: why a snapshot failed.
    pub(super) printed: Vec<u8>,
}

/// Where CPython keeps what its signal handler would set.
#[derive(Clone, Copy)]
struct Mailbox {
    tripped: u32,
    any_tripped: u32,
    eval_breaker: u32,
    pending_bit: u32,
}

impl State {
    pub(super) fn new(
        files: Files,
        clock: Clock,
        door: Option<Arc<Door>>,
        memory_bytes_max: usize,
    ) -> Self {
        Self {
            files,
            clock,
            memory: None,
            door,
            mailbox: None,
            memory_bytes_max,
            reserve_bytes: 0,
            reserve_given: false,
            printed: Vec::new(),
        }
    }

    pub(super) fn print(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
        if let Some(door) = &self.door {
            return door.print(kind, bytes).map_err(Error::new);
        }
        self.printed.extend_from_slice(bytes);
        Ok(())
    }

    /// Wait, unless an interrupt comes.
    pub(super) fn sleep(&mut self, time: Duration, memory: &mut [u8]) -> Result<(), Error> {
        if let Some(door) = &self.door {
            door.sleep(Instant::now() + time.min(DAY));
        }
        self.heed(memory)
    }

    /// See to an interrupt or a stop that came meanwhile.
    fn heed(&self, memory: &mut [u8]) -> Result<(), Error> {
        let pending = self.door.as_ref().map(|door| door.pending());
        match pending.unwrap_or(Pending::Nothing) {
            Pending::Nothing => Ok(()),
            Pending::Stop => Err(Error::new(Ended::Stopped)),
            Pending::Interrupt => {
                if let Some(mailbox) = self.mailbox {
                    mailbox.trip(memory);
                }
                Ok(())
            }
        }
    }

    /// Have the files that the host sent.
    fn take_mounts(&mut self) {
        let Some(door) = &self.door else { return };
        for (name, content) in door.mounts_after(self.files.later()) {
            self.files.mount_later(&name, content);
        }
    }

    /// Let the next turn begin, with `memory_bytes` of linear memory in use.
    fn begin_turn(&mut self, memory_bytes: usize) {
        self.take_mounts();
        let used = memory_bytes + self.files.memory_bytes() as usize;
        self.reserve_given = false;
        self.reserve_bytes = (used + RESERVE_BYTES)
            .saturating_sub(self.memory_bytes_max)
            .min(RESERVE_BYTES_MAX);
    }
}

impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, Error> {
        let used = desired + self.files.memory_bytes() as usize;
        if used > self.memory_bytes_max + self.reserve_bytes {
            if !self.reserve_given {
                self.reserve_given = true;
                self.reserve_bytes = (self.reserve_bytes + RESERVE_BYTES).min(RESERVE_BYTES_MAX);
            }
            return Ok(false);
        }
        self.files.set_memory_bytes_elsewhere(desired as u64);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, Error> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}

impl Mailbox {
    /// Do what CPython's signal handler does. The guest chose the places: they may be anywhere in
    /// its own memory, and nowhere else.
    fn trip(self, memory: &mut [u8]) {
        let mut set = |at: u32, change: &dyn Fn(u32) -> u32| {
            let at = at as usize;
            if let Some(word) = memory.get_mut(at..at.saturating_add(4)) {
                let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                word.copy_from_slice(&change(value).to_le_bytes());
            }
        };
        set(self.tripped, &|_| 1);
        set(self.any_tripped, &|_| 1);
        set(self.eval_breaker, &|value| value | self.pending_bit);
    }
}

/// The engine as every part of the product sets it up: code compiled under other settings is
/// refused when it is loaded.
pub(super) fn engine() -> Result<Engine, Error> {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES_MAX)
        // Not used, and yet it may not be smaller.
        .async_stack_size(STACK_BYTES_MAX)
        // Sessions share the pages of the snapshot that they do not write.
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(IMAGE_BYTES_MAX)
        // Tables that only debuggers and backtraces read; half of the compiled code's size.
        .generate_address_map(false)
        // Windows keeps its own account of each frame and wants it whole.
        .native_unwind_info(cfg!(windows))
        .wasm_backtrace_max_frames(None);
    Engine::new(&config)
}

/// A module with the host's functions, ready to be started any number of times.
pub(super) struct Template {
    engine: Engine,
    module: InstancePre<State>,
}

impl Template {
    pub(super) fn new(engine: &Engine, module: &Module) -> Result<Self, Error> {
        let mut linker = Linker::new(engine);
        preview1::add_to(&mut linker)?;
        door_functions(&mut linker)?;
        Ok(Self {
            engine: engine.clone(),
            module: linker.instantiate_pre(module)?,
        })
    }
}

/// A started guest.
pub(super) struct Machine {
    store: Store<State>,
    memory: Memory,
    turn: TypedFunc<(), i32>,
}

impl Machine {
    /// Start from the snapshot, or from a checkpoint of an earlier start.
    pub(super) fn start(
        template: &Template,
        state: State,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self, Error> {
        let (mut store, memory, instance) = instantiate(template, state)?;
        let turn = instance.get_typed_func(&mut store, "turn")?;
        let mailbox = instance.get_typed_func::<(), u32>(&mut store, "mailbox")?;
        let at = mailbox.call(&mut store, ())? as usize;
        let word = |index: usize| {
            let at = at + 4 * index;
            let bytes = memory.data(&store).get(at..at + 4);
            bytes.and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
        };
        let mailbox = (|| {
            Some(Mailbox {
                tripped: word(0)?,
                any_tripped: word(1)?,
                eval_breaker: word(2)?,
                pending_bit: word(3)?,
            })
        })();
        store.data_mut().mailbox = mailbox;
        if let Some(checkpoint) = checkpoint {
            let missing = checkpoint.memory_bytes() - memory.data_size(&store);
            memory.grow(&mut store, (missing / (64 << 10)) as u64)?;
            checkpoint.put(memory.data_mut(&mut store));
            store.data_mut().files = checkpoint.files().clone();
        }
        let bytes = memory.data_size(&store) as u64;
        store.data_mut().files.set_memory_bytes_elsewhere(bytes);
        Ok(Self {
            store,
            memory,
            turn,
        })
    }

    /// Let Python do what there is to do; when it wants the next turn, if at all.
    pub(super) fn turn(&mut self) -> Result<Option<Instant>, Ended> {
        let memory_bytes = self.memory.data_size(&self.store);
        self.store.data_mut().begin_turn(memory_bytes);
        self.store.set_epoch_deadline(1);
        match self.turn.call(&mut self.store, ()) {
            Ok(-2) => Err(Ended::Failed),
            Ok(wait) => Ok(u64::try_from(wait)
                .ok()
                .map(|wait| Instant::now() + Duration::from_millis(wait))),
            Err(error) => Err(ended(&error)),
        }
    }

    /// Copy what makes this guest, with the buffers of an `old` copy; nothing if it changed more
    /// than half of what it may hold.
    pub(super) fn save(
        &self,
        pages: &mut checkpoint::Pages,
        old: Option<Checkpoint>,
    ) -> Option<Checkpoint> {
        let state = self.store.data();
        let memory = self.memory.data(&self.store);
        Checkpoint::take(memory, &state.files, pages, old, state.memory_bytes_max / 2)
    }

    /// Let go of it, but for what the next one goes on with.
    pub(super) fn into_state(self) -> State {
        let mut state = self.store.into_data();
        state.memory = None;
        state.reserve_bytes = 0;
        state
    }
}

fn ended(error: &Error) -> Ended {
    error
        .downcast_ref::<Ended>()
        .cloned()
        .unwrap_or_else(|| Ended::Crashed(format!("{error:#}")))
}

fn instantiate(
    template: &Template,
    state: State,
) -> Result<(Store<State>, Memory, wasmtime::Instance), Error> {
    let mut store = Store::new(&template.engine, state);
    store.limiter(|state| state);
    store.epoch_deadline_callback(|mut context: StoreContextMut<'_, State>| {
        if let Some(memory) = context.data().memory {
            let (memory, state) = memory.data_and_store_mut(&mut context);
            state.heed(memory)?;
        }
        Ok(UpdateDeadline::Continue(1))
    });
    store.set_epoch_deadline(1);
    let instance = template.module.instantiate(&mut store)?;
    let memory = instance
        .get_memory(&mut store, "memory")
        .ok_or_else(|| Error::msg("the module exports no memory"))?;
    store.data_mut().memory = Some(memory);
    Ok((store, memory, instance))
}

/// Start a module that holds no started Python yet, and give its memory as `wizer` wants it.
pub(super) fn initialize(
    template: &Template,
    state: State,
) -> Result<(Store<State>, wasmtime::Instance), String> {
    let told = |error: &Error| format!("{error:#}");
    let (mut store, _, instance) = instantiate(template, state).map_err(|error| told(&error))?;
    for name in ["_initialize", "wizer-initialize"] {
        let done = instance
            .get_typed_func::<(), ()>(&mut store, name)
            .and_then(|function| function.call(&mut store, ()));
        if let Err(error) = done {
            let printed = String::from_utf8_lossy(&store.data().printed).into_owned();
            return Err(format!("{name}: {}\n{printed}", told(&error)));
        }
    }
    Ok((store, instance))
}

/// What Python's built-in module `_door` calls; see `door.c`.
fn door_functions(linker: &mut Linker<State>) -> Result<(), Error> {
    linker.func_wrap(
        "door",
        "receive",
        |mut caller: Caller<'_, State>, seconds: f64, header: u32| -> Result<i32, Error> {
            let Some((door, memory)) = at_door(&caller) else {
                return Ok(0);
            };
            let until = (seconds >= 0.0).then(|| {
                let seconds = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                Instant::now() + seconds.min(DAY)
            });
            let woken = door.receive(until);
            let (memory, state) = memory.data_and_store_mut(&mut caller);
            match woken {
                Woken::Frame(frame) => {
                    // What came before the frame is there when the guest reads it.
                    state.take_mounts();
                    let mut bytes = [0; 16];
                    bytes[0..4].copy_from_slice(&(frame.kind as u32).to_le_bytes());
                    bytes[4..8].copy_from_slice(&(frame.length as u32).to_le_bytes());
                    bytes[8..16].copy_from_slice(&frame.id.to_le_bytes());
                    place(memory, header, 16)?.copy_from_slice(&bytes);
                    Ok(1)
                }
                Woken::Timeout => Ok(0),
                Woken::Pending => state.heed(memory).map(|()| 0),
            }
        },
    )?;
    linker.func_wrap(
        "door",
        "take",
        |mut caller: Caller<'_, State>, at: u32, length: u32| -> Result<(), Error> {
            let Some((door, memory)) = at_door(&caller) else {
                return Ok(());
            };
            let Some(frame) = door.take() else {
                return Ok(());
            };
            let bytes = &frame.payload[..frame.payload.len().min(length as usize)];
            place(memory.data_mut(&mut caller), at, bytes.len() as u32)?.copy_from_slice(bytes);
            Ok(())
        },
    )?;
    linker.func_wrap(
        "door",
        "send",
        |mut caller: Caller<'_, State>,
         kind: u32,
         id: u64,
         at: u32,
         length: u32|
         -> Result<(), Error> {
            let Some((door, memory)) = at_door(&caller) else {
                return Ok(());
            };
            let kind = u8::try_from(kind)
                .ok()
                .and_then(Kind::of_guest)
                .ok_or_else(|| Error::msg("a frame of a kind that no guest sends"))?;
            if length as usize > frame::PAYLOAD_BYTES_MAX {
                return Err(Error::msg("a frame larger than any may be"));
            }
            let payload = place(memory.data_mut(&mut caller), at, length)?;
            door.send(kind, id, payload).map_err(Error::new)
        },
    )?;
    linker.func_wrap("door", "heeded", |caller: Caller<'_, State>| {
        if let Some(door) = &caller.data().door {
            door.heeded();
        }
    })?;
    Ok(())
}

fn at_door(caller: &Caller<'_, State>) -> Option<(Arc<Door>, Memory)> {
    let state = caller.data();
    Some((state.door.clone()?, state.memory?))
}

fn place(memory: &mut [u8], at: u32, length: u32) -> Result<&mut [u8], Error> {
    let at = at as usize;
    memory
        .get_mut(at..at + length as usize)
        .ok_or_else(|| Error::msg("a place outside of the memory"))
}
