//! The system's own dialogs: which file, and what went wrong before there was a window.

use std::path::{Path, PathBuf};

use runbridge_core::api::{ApiError, ErrorCode};
use tauri::AppHandle;
use tauri_plugin_dialog::{DialogExt as _, FilePath, MessageDialogKind};
use tauri_plugin_opener::OpenerExt as _;
use tokio::sync::oneshot;

/// Where to save a file; nothing if the user changed their mind.
pub(crate) async fn save_as(
    app: &AppHandle,
    name: &str,
    kind: &str,
    ending: &str,
) -> Option<PathBuf> {
    let (chose, chosen) = oneshot::channel();
    app.dialog()
        .file()
        .add_filter(kind, &[ending])
        .set_file_name(name)
        .save_file(|path| drop(chose.send(path)));
    path_of(chosen.await.ok()?)
}

/// Which file to read; nothing if the user changed their mind.
pub(crate) async fn open(app: &AppHandle, kind: &str, ending: &str) -> Option<PathBuf> {
    let (chose, chosen) = oneshot::channel();
    app.dialog()
        .file()
        .add_filter(kind, &[ending])
        .pick_file(|path| drop(chose.send(path)));
    path_of(chosen.await.ok()?)
}

fn path_of(chosen: Option<FilePath>) -> Option<PathBuf> {
    chosen?.into_path().ok()
}

/// Say why the app cannot start, and end it once that was read.
pub(crate) fn say_and_exit(app: &AppHandle, why: &str) {
    tracing::error!("the app cannot start: {why}");
    let exits = app.clone();
    app.dialog()
        .message(why)
        .title("Runbridge cannot start")
        .kind(MessageDialogKind::Error)
        .show(move |_| exits.exit(1));
}

/// Open a folder of ours in the system's file manager, or show a file in it.
pub(crate) fn show_in_folder(app: &AppHandle, path: &Path) -> Result<(), ApiError> {
    let shown = if path.is_dir() {
        app.opener().open_path(path.to_string_lossy(), None::<&str>)
    } else {
        app.opener().reveal_item_in_dir(path)
    };
    shown.map_err(|error| failed(format!("{} cannot be shown: {error}", path.display())))
}

/// Open a page in the user's browser.
pub(crate) fn open_in_browser(app: &AppHandle, page: &str) -> Result<(), ApiError> {
    let opened = app.opener().open_url(page, None::<&str>);
    opened.map_err(|error| failed(format!("the browser cannot be opened: {error}")))
}

fn failed(message: String) -> ApiError {
    ApiError {
        code: ErrorCode::Internal,
        message,
        hint: None,
        log_id: None,
    }
}
