//! What can go wrong with a sandbox: facts, not sentences for the user.

/// A sandbox that could not be had or was lost.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No container engine answers. `tried` lists each place with the reason.
    #[error("no container engine is available ({})", tried.join("; "))]
    NoEngine {
        /// Places looked at, each with what was found there.
        tried: Vec<String>,
    },
    /// The engine that the settings force is not there.
    #[error("container engine `{engine}` was asked for but is not available: {reason}")]
    EngineAbsent {
        /// The engine's name as the user wrote it.
        engine: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// The image is absent and could not be pulled.
    #[error("image `{image}` is not available: {reason}")]
    ImageMissing {
        /// The image's reference.
        image: String,
        /// What the engine said.
        reason: String,
    },
    /// The engine refused or broke off an operation.
    #[error("{engine}: cannot {operation}: {reason}")]
    Engine {
        /// Which engine.
        engine: String,
        /// What was being done.
        operation: &'static str,
        /// What the engine said.
        reason: String,
    },
    /// The guest did not come up.
    #[error("the Python interpreter did not start: {reason}")]
    GuestStart {
        /// Last output or exit status.
        reason: String,
    },
    /// The worker that holds an embedded guest did not come up.
    #[error("the built-in sandbox did not start: {reason}")]
    WorkerStart {
        /// What the system or the worker said.
        reason: String,
    },
    /// The embedded Python is not there or cannot be used on this machine.
    #[error("the built-in Python is not available: {reason}")]
    ModuleMissing {
        /// Which file, and what is wrong with it.
        reason: String,
    },
}
