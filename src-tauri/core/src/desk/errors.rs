//! Errors of the bridge's parts as a window sees them.

use runbridge_sandbox::SandboxError;

use crate::api::{ApiError, ErrorCode};
use crate::memory::MemoryError;
use crate::redact::Redactor;
use crate::run;
use crate::saved_tools::SavedToolsError;
use crate::settings::SettingsError;
use crate::sign_in::SignInError;
use crate::store::StoreError;
use crate::upstream::UpstreamError;

pub(super) fn internal(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Internal, message)
}

pub(super) fn of_upstream(error: &UpstreamError, redactor: &Redactor) -> ApiError {
    let code = match error.code() {
        serde_json::Value::String(code) => ErrorCode::of_call(&code),
        _ => ErrorCode::ToolFailed,
    };
    let (facts, hint) = parts(error);
    ApiError {
        hint: hint.map(|hint| redactor.text(&hint).into_owned()),
        ..ApiError::new(code, redactor.text(&facts).into_owned())
    }
}

/// What happened, and what to do now.
fn parts(error: &UpstreamError) -> (String, Option<String>) {
    match error {
        UpstreamError::BackingOff { last, .. } => parts(last),
        UpstreamError::Start { hint, .. } => {
            let mut facts = error.clone();
            if let UpstreamError::Start { hint, .. } = &mut facts {
                *hint = None;
            }
            (facts.to_string(), hint.clone())
        }
        UpstreamError::SignIn { .. } => {
            (error.to_string(), Some("Sign in to the server".to_owned()))
        }
        UpstreamError::NeedsValue { .. } => (
            error.to_string(),
            Some("Give the missing values".to_owned()),
        ),
        _ => (error.to_string(), None),
    }
}

pub(super) fn of_sandbox(error: &SandboxError) -> ApiError {
    let code = ErrorCode::of_call(run::sandbox_code(error));
    ApiError::new(code, error.to_string()).hint(run::sandbox_hint(error))
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        let code = match &error {
            MemoryError::ValueTooLarge { .. }
            | MemoryError::MetadataTooLarge { .. }
            | MemoryError::TooManyKeys { .. } => ErrorCode::MemoryFull,
            MemoryError::Key { .. } | MemoryError::Damaged { .. } | MemoryError::Import(_) => {
                ErrorCode::MemoryInvalid
            }
            MemoryError::Exists { .. } => ErrorCode::MemoryConflict,
            MemoryError::Busy(_) => ErrorCode::BridgeBusy,
            MemoryError::Io { .. } => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SavedToolsError> for ApiError {
    fn from(error: SavedToolsError) -> Self {
        let code = match &error {
            SavedToolsError::Name { .. } | SavedToolsError::TooLarge { .. } => {
                ErrorCode::MemoryInvalid
            }
            SavedToolsError::TooMany { .. } => ErrorCode::MemoryFull,
            SavedToolsError::Busy(_) => ErrorCode::BridgeBusy,
            SavedToolsError::Io { .. } => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SettingsError> for ApiError {
    fn from(error: SettingsError) -> Self {
        let (code, hint) = match &error {
            SettingsError::Changed(_) => (ErrorCode::SettingsInvalid, "Try again"),
            SettingsError::Newer { .. } => (ErrorCode::SettingsNewer, "Update Runbridge"),
            SettingsError::Broken { .. } | SettingsError::NotAnObject(_) => (
                ErrorCode::SettingsInvalid,
                "Open the settings file and correct it",
            ),
            SettingsError::Disk { .. } => (
                ErrorCode::SettingsInvalid,
                "Make the file writable, or free some space on its disk",
            ),
        };
        Self::new(code, error.to_string()).hint(hint)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::new(ErrorCode::Internal, error.to_string())
    }
}

impl From<SignInError> for ApiError {
    fn from(error: SignInError) -> Self {
        let code = match &error {
            SignInError::NoServer { .. } => ErrorCode::ServerNotFound,
            SignInError::NotRemote { .. }
            | SignInError::OwnHeader { .. }
            | SignInError::NotNeeded { .. } => ErrorCode::InvalidArguments,
            SignInError::Unreachable { .. } => ErrorCode::ServerUnreachable,
            _ => ErrorCode::ServerAuthRequired,
        };
        Self::new(code, error.to_string())
    }
}

/// A file that could not be written where the user wanted it.
pub(super) fn not_written(path: &std::path::Path, error: &dyn std::fmt::Display) -> ApiError {
    internal(format!("{} cannot be written: {error}", path.display())).hint("Choose another folder")
}

/// A file that could not be read.
pub(super) fn not_read(path: &std::path::Path, error: &dyn std::fmt::Display) -> ApiError {
    internal(format!("{} cannot be read: {error}", path.display()))
}
