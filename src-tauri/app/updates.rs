//! Newer versions: looked for and installed by Tauri's updater, which takes only what our key has
//! signed. A build without a key, such as one from the sources, does not look.

use std::time::Duration;

use runbridge_core::api::{ApiError, ErrorCode, UpdateState};
use runbridge_core::desk::Desk;
use tauri::AppHandle;
use tauri_plugin_updater::UpdaterExt as _;

/// How often the window is told of a download's progress: each hundredth of a usual package.
const PROGRESS_BYTES: u64 = 256 * 1024;

const DAY: Duration = Duration::from_hours(24);

/// Whether this build has a key and an address to look at.
pub(crate) fn are_configured(config: &tauri::Config) -> bool {
    config.plugins.0.contains_key("updater")
}

/// Look once a day for as long as the app lives, if the user wants that and this build can.
pub(crate) fn look_daily(app: &AppHandle, desk: &Desk) {
    if !are_configured(app.config()) {
        return;
    }
    let (app, desk) = (app.clone(), desk.clone());
    tauri::async_runtime::spawn(async move {
        loop {
            let state = desk.get_state().await;
            if state.is_ok_and(|state| state.settings.check_for_updates) {
                check(&app, &desk).await;
            }
            tokio::time::sleep(DAY).await;
        }
    });
}

/// Look for a newer version; what came of it goes to the desk.
pub(crate) async fn check(app: &AppHandle, desk: &Desk) {
    desk.set_update(UpdateState::Checking);
    desk.set_update(match find(app).await {
        Ok(Some(update)) => UpdateState::Available {
            version: update.version,
            notes: update.body.unwrap_or_default(),
        },
        Ok(None) => UpdateState::Current { checked_at: now() },
        Err(error) => UpdateState::Failed { error },
    });
}

/// Load and install the newer version; it takes effect at the next start.
pub(crate) async fn install(app: &AppHandle, desk: &Desk) {
    let state = match try_install(app, desk).await {
        Ok(version) => UpdateState::Installed { version },
        Err(error) => UpdateState::Failed { error },
    };
    desk.set_update(state);
}

async fn try_install(app: &AppHandle, desk: &Desk) -> Result<String, ApiError> {
    let update = find(app)
        .await?
        .ok_or_else(|| failed("there is no newer version"))?;
    let (mut done_bytes, mut told_bytes) = (0, 0);
    let bytes = update
        .download(
            |piece, total_bytes| {
                done_bytes += piece as u64;
                if done_bytes - told_bytes >= PROGRESS_BYTES {
                    told_bytes = done_bytes;
                    desk.set_update(UpdateState::Downloading {
                        done_bytes,
                        total_bytes,
                    });
                }
            },
            || {},
        )
        .await
        .map_err(|error| failed(&error.to_string()))?;
    let version = update.version.clone();
    tauri::async_runtime::spawn_blocking(move || update.install(bytes))
        .await
        .map_err(|error| failed(&error.to_string()))?
        .map_err(|error| failed(&error.to_string()))?;
    Ok(version)
}

async fn find(app: &AppHandle) -> Result<Option<tauri_plugin_updater::Update>, ApiError> {
    if !are_configured(app.config()) {
        return Err(ApiError {
            hint: Some("Get a newer one where this one came from.".to_owned()),
            ..failed("this build does not update itself")
        });
    }
    let updater = app.updater().map_err(|error| failed(&error.to_string()))?;
    updater
        .check()
        .await
        .map_err(|error| failed(&error.to_string()))
}

fn failed(message: &str) -> ApiError {
    ApiError {
        code: ErrorCode::UpdateFailed,
        message: message.to_owned(),
        hint: None,
        log_id: None,
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
