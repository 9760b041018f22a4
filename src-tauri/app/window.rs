//! The one window: shown, brought to front, made anew. Closing it destroys it, so that an app in the
//! tray costs no webview; what it shows comes from the bridge, so nothing is lost.

use anyhow::Context as _;
use tauri::{AppHandle, Manager as _, UserAttentionType, WebviewWindowBuilder};
use tauri_plugin_window_state::StateFlags;

/// As `tauri.conf.json` and the capability name it.
pub(crate) const LABEL: &str = "main";

/// What of the window is as it was left. Not whether it was visible: closed means closed.
pub(crate) const REMEMBERED: StateFlags = StateFlags::SIZE
    .union(StateFlags::POSITION)
    .union(StateFlags::MAXIMIZED);

/// Show the window in front of others.
pub(crate) fn show(app: &AppHandle) {
    if let Err(error) = try_show(app) {
        tracing::error!("the window cannot be shown: {error:#}");
    }
}

/// Have the system mark an open window as one that wants something.
pub(crate) fn ask_for_attention(app: &AppHandle) {
    let Some(window) = app.get_webview_window(LABEL) else {
        return;
    };
    if let Err(error) = window.request_user_attention(Some(UserAttentionType::Informational)) {
        tracing::debug!("the window cannot ask for attention: {error}");
    }
}

fn try_show(app: &AppHandle) -> anyhow::Result<()> {
    let window = match app.get_webview_window(LABEL) {
        Some(window) => window,
        None => make(app)?,
    };
    window.unminimize()?;
    window.show()?;
    window.set_focus()?;
    Ok(())
}

fn make(app: &AppHandle) -> anyhow::Result<tauri::WebviewWindow> {
    let config = app
        .config()
        .app
        .windows
        .iter()
        .find(|window| window.label == LABEL)
        .context("tauri.conf.json names no window")?;
    WebviewWindowBuilder::from_config(app, config)?
        // Links of any page go to the user's browser, by a command that looks at them first.
        .on_navigation(|url| is_own(url.scheme(), url.host_str()))
        .build()
        .context("the webview does not start")
}

/// Whether an address is a page of ours.
fn is_own(scheme: &str, host: Option<&str>) -> bool {
    match scheme {
        "tauri" => host == Some("localhost"),
        // How Windows spells the same.
        "http" | "https" => host == Some("tauri.localhost"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_stays_on_its_own_pages() {
        assert!(is_own("tauri", Some("localhost")));
        assert!(is_own("http", Some("tauri.localhost")));
        for (scheme, host) in [
            ("https", Some("example.com")),
            ("http", Some("localhost")),
            ("tauri", Some("example.com")),
            ("file", None),
            ("data", None),
        ] {
            assert!(!is_own(scheme, host), "{scheme} {host:?}");
        }
    }
}
