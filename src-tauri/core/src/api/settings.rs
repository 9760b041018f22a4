//! The program itself: decisions that are not limits, places on disk, updates.

use serde::{Deserialize, Serialize};

use super::ApiError;

/// Decisions that are not limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct AppSettings {
    /// Start with the computer.
    pub launch_at_login: bool,
    /// Tell about what needs the user.
    pub notifications: bool,
    /// Look for updates by itself.
    pub check_for_updates: bool,
    /// Light or dark.
    pub appearance: Appearance,
    /// Days that a run stays on record.
    pub keep_runs_days: u32,
    /// Runs that stay on record.
    pub keep_runs_max: u32,
}

/// Settings to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS), ts(optional_fields))]
pub struct SettingsPatch {
    /// Start with the computer.
    pub launch_at_login: Option<bool>,
    /// Tell about what needs the user.
    pub notifications: Option<bool>,
    /// Look for updates by itself.
    pub check_for_updates: Option<bool>,
    /// Light or dark.
    pub appearance: Option<Appearance>,
    /// Days that a run stays on record.
    pub keep_runs_days: Option<u32>,
    /// Runs that stay on record.
    pub keep_runs_max: Option<u32>,
}

/// Light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Appearance {
    /// As the system.
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

/// This program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct AppInfo {
    /// Its version.
    pub version: String,
    /// `linux`, `macos` or `windows`.
    pub system: String,
    /// The sidecar that clients start.
    pub sidecar: String,
    /// The settings file.
    pub settings_file: String,
    /// Where memory and saved tools lie.
    pub state_folder: String,
    /// Where the record of runs lies.
    pub data_folder: String,
    /// Where logs lie.
    pub logs_folder: String,
    /// Where secrets are kept.
    pub secret_store: SecretStore,
    /// Whether a newer version is there.
    pub update: UpdateState,
}

/// Where secrets are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct SecretStore {
    /// Which place.
    pub kind: SecretStoreKind,
    /// Why it is not the keyring, or why it does not open.
    pub error: Option<ApiError>,
}

/// A place for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum SecretStoreKind {
    /// The system's keyring.
    Keyring,
    /// An encrypted file of ours.
    EncryptedFile,
}

/// Whether a newer version is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum UpdateState {
    /// This build cannot look.
    Off,
    /// Nobody looked.
    Unknown,
    /// Looking.
    Checking,
    /// This is the newest.
    Current {
        /// When that was seen.
        checked_at: i64,
    },
    /// A newer one is there.
    Available {
        /// Its version.
        version: String,
        /// What is new.
        notes: String,
    },
    /// On its way.
    Downloading {
        /// Bytes so far.
        done_bytes: u64,
        /// Bytes in all, once known.
        total_bytes: Option<u64>,
    },
    /// It takes effect at the next start.
    Installed {
        /// Its version.
        version: String,
    },
    /// It cannot be had.
    Failed {
        /// Why.
        error: ApiError,
    },
}

/// A place that the window can open in the system's file manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub enum Place {
    /// The settings file.
    Settings,
    /// Memory and saved tools.
    State,
    /// The record of runs.
    Data,
    /// Logs.
    Logs,
}

/// A file of the diagnostics bundle, as it would be saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct DiagnosticsFile {
    /// Its name in the bundle.
    pub name: String,
    /// What it holds, redacted.
    pub text: String,
}

/// The licence of a part that this program contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "bindings", derive(ts_rs::TS))]
pub struct Licence {
    /// The part.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SPDX expression.
    pub licence: String,
}
