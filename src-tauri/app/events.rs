//! What happens in the bridge, handed to the window, the tray, the notifications and the system's list
//! of programs to start. It decides nothing; who is shown what is said in their files.

use runbridge_core::api::{ApiError, AppSettings, Change, EVENT, SettingsPatch};
use runbridge_core::desk::Desk;
use std::time::Duration;
use tauri::{AppHandle, Emitter as _, Manager as _};
use tauri_plugin_autostart::ManagerExt as _;
use tokio::sync::broadcast::error::RecvError;

use crate::notify::{self, Told};
use crate::served::Served;
use crate::tray::{self, Action};
use crate::{quit, window};

/// Changes that come together are drawn together; well below what an eye calls late.
const TRAY_EVERY: Duration = Duration::from_millis(150);

/// Follow the bridge for as long as the app lives.
pub(crate) fn follow(app: &AppHandle, desk: &Desk) {
    let (for_changes, changes) = (app.clone(), desk.subscribe());
    let (for_tray, mut status) = (app.clone(), desk.status());
    let of_start = desk.clone();
    tauri::async_runtime::spawn(async move {
        follow_changes(for_changes, of_start, changes).await;
    });
    tauri::async_runtime::spawn(async move {
        loop {
            let shown = tray::of(&status.borrow_and_update());
            tray::draw(&for_tray, shown);
            if status.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(TRAY_EVERY).await;
        }
    });
}

async fn follow_changes(
    app: AppHandle,
    desk: Desk,
    mut changes: tokio::sync::broadcast::Receiver<runbridge_core::api::BridgeEvent>,
) {
    let mut told = Told::default();
    let mut notifications = true;
    if let Ok(state) = desk.get_state().await {
        notifications = state.settings.notifications;
        if state.settings.launch_at_login {
            // The program may have moved since it was entered.
            set_launch_at_login(&app, true);
        }
        for news in told.news_of(&state.attention) {
            if notifications {
                notify::show(&app, news);
            }
        }
    }
    loop {
        let event = match changes.recv().await {
            Ok(event) => event,
            // The window sees the gap in the numbers and asks for the whole state.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        match &event.change {
            Change::Attention { attention } => {
                let news = told.news_of(attention);
                if notifications {
                    for news in news {
                        notify::show(&app, news);
                    }
                }
            }
            Change::Question { question } => {
                if notifications {
                    notify::show(&app, notify::news_of_question(question));
                }
                window::ask_for_attention(&app);
            }
            Change::Run { run } if notifications => {
                if let Some(news) = notify::news_of_run(run) {
                    notify::show(&app, news);
                }
            }
            Change::Settings { settings } => {
                notifications = settings.notifications;
                follow_settings(&app, settings);
            }
            _ => {}
        }
        if app.get_webview_window(window::LABEL).is_some()
            && let Err(error) = app.emit_to(window::LABEL, EVENT, &event)
        {
            tracing::debug!("the window was not told: {error}");
        }
    }
}

fn follow_settings(app: &AppHandle, settings: &AppSettings) {
    let enabled = app.autolaunch().is_enabled().unwrap_or(false);
    if enabled != settings.launch_at_login {
        set_launch_at_login(app, settings.launch_at_login);
    }
}

fn set_launch_at_login(app: &AppHandle, on: bool) {
    let list = app.autolaunch();
    let done = if on { list.enable() } else { list.disable() };
    if let Err(error) = done {
        tracing::warn!("the list of programs that start at login cannot be changed: {error}");
    }
}

/// What a click in the tray asks for.
pub(crate) fn clicked(app: &AppHandle, action: Action) {
    let app = app.clone();
    tauri::async_runtime::spawn(async move {
        if let Err(error) = act(&app, action).await {
            tracing::warn!("what the tray asked for was refused: {}", error.message);
            notify::show(&app, notify::refused(&error));
        }
        // A click has switched the line already.
        tray::redraw(&app);
    });
}

async fn act(app: &AppHandle, action: Action) -> Result<(), ApiError> {
    let desk = app.state::<Served>().desk().clone();
    let status = desk.status().borrow().clone();
    match action {
        Action::Open => window::show(app),
        Action::TogglePaused => desk.set_paused(!status.paused),
        Action::StopRun(id) => desk.stop_run(&id)?,
        Action::ToggleServer(name) => {
            let server = status.servers.iter().find(|server| server.name == name);
            let enabled = server.is_some_and(|server| server.enabled);
            desk.set_server_enabled(name, !enabled).await?;
        }
        Action::SetLimit(name, value) => {
            desk.set_limit(name, value).await?;
        }
        Action::ToggleLaunchAtLogin => {
            let patch = SettingsPatch {
                launch_at_login: Some(!status.launch_at_login),
                ..SettingsPatch::default()
            };
            desk.change_settings(patch).await?;
        }
        Action::Quit => {
            let clients: Vec<String> = status
                .connections
                .into_iter()
                .map(|one| one.client)
                .collect();
            quit::ask(app, &clients);
        }
    }
    Ok(())
}
