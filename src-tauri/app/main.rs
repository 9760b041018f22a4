//! The desktop app: it owns the bridge of its user, lends it to all clients, and shows it in a tray
//! and a window. This file is the wiring from top to bottom; everything that decides is in the core.
#![cfg_attr(not(debug_assertions), windows_subsystem = "windows")]

mod commands;
mod dialogs;
mod events;
mod log_file;
mod notify;
#[cfg(target_os = "linux")]
mod places;
mod quit;
mod served;
mod sidecar_copy;
mod tray;
mod updates;
mod window;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use runbridge_core::paths::{Environment, Paths};
use runbridge_core::settings::Settings;
use tauri::webview::PageLoadEvent;
use tauri::{AppHandle, Manager as _, RunEvent, WindowEvent};
use tauri_plugin_autostart::MacosLauncher;

use served::Served;

/// Started by the system and not by a hand: the tray is enough.
const HIDDEN: &str = "--hidden";

/// Set by a program that drives the window, such as a test.
const AUTOMATION: &str = "TAURI_WEBVIEW_AUTOMATION";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let begun = Instant::now();
    let environment = Environment::of_process();
    if environment.get(AUTOMATION).is_some() && !may_be_automated() {
        anyhow::bail!(
            "{AUTOMATION} is set, and this build does not let other programs drive its window; \
             unset it"
        );
    }
    let paths = Paths::for_user(&environment)?;
    start_log(&environment, &paths)?;
    let hidden = std::env::args().skip(1).any(|argument| argument == HIDDEN);

    let context = tauri::generate_context!();
    let mut builder = tauri::Builder::default()
        // First, so that a second start does nothing but show the window of the first.
        .plugin(single_instance(&paths))
        .plugin(tauri_plugin_autostart::init(
            MacosLauncher::LaunchAgent,
            Some(vec![HIDDEN]),
        ))
        .plugin(tauri_plugin_dialog::init())
        .plugin(tauri_plugin_notification::init())
        .plugin(tauri_plugin_opener::init())
        .plugin(
            tauri_plugin_window_state::Builder::new()
                .with_state_flags(window::REMEMBERED)
                .build(),
        )
        .manage(tray::Desktop(
            environment.get("XDG_CURRENT_DESKTOP").map(str::to_owned),
        ))
        .invoke_handler(commands::handler())
        .on_page_load(move |_, page| {
            if page.event() == PageLoadEvent::Finished {
                let ms = begun.elapsed().as_millis();
                tracing::info!("the page is loaded, {ms} ms after the start of the app");
            }
        })
        .on_window_event(|window, event| {
            let app = window.app_handle();
            match event {
                WindowEvent::ThemeChanged(_) => tray::redraw(app),
                WindowEvent::Destroyed => {
                    // Nobody looks any more.
                    if let Some(served) = app.try_state::<Served>() {
                        served.desk().look_away();
                    }
                    tray::redraw(app);
                }
                _ => {}
            }
        })
        .setup(move |app| {
            let app = app.handle();
            match open(environment, &paths, updates::are_configured(app.config())) {
                Ok(served) => start(app, &paths, served, hidden),
                // There is no window yet, and nobody reads a log that they do not know of.
                Err(error) => dialogs::say_and_exit(app, &format!("{error:#}")),
            }
            Ok(())
        });
    if updates::are_configured(context.config()) {
        builder = builder.plugin(tauri_plugin_updater::Builder::new().build());
    }
    builder
        .build(context)
        .context("the app cannot start")?
        .run(|app, event| match event {
            // The last window has closed; the tray stays.
            RunEvent::ExitRequested {
                code: None, api, ..
            } => api.prevent_exit(),
            RunEvent::Exit => {
                if let Some(served) = app.try_state::<Served>() {
                    served.shut_down();
                }
            }
            // The icon in the dock of macOS.
            #[cfg(target_os = "macos")]
            RunEvent::Reopen { .. } => window::show(app),
            _ => {}
        });
    Ok(())
}

fn open(environment: Environment, paths: &Paths, updates: bool) -> anyhow::Result<Served> {
    let program = std::env::current_exe().context("the app's own path is unknown")?;
    let _inside = tauri::async_runtime::handle().inner().enter();
    Served::open(environment, paths, &program, updates)
}

fn start(app: &AppHandle, paths: &Paths, served: Served, hidden: bool) {
    let desk = served.desk().clone();
    app.manage(served);
    if let Err(error) = tray::make(app, paths, events::clicked) {
        tracing::warn!("there is no tray, so the window is the only way in: {error:#}");
    }
    events::follow(app, &desk);
    updates::look_daily(app, &desk);
    quit_on_signals(app);
    if !hidden {
        window::show(app);
    }
    tracing::info!("Runbridge {} is ready", env!("CARGO_PKG_VERSION"));
}

/// A second start shows the window of the first and ends.
fn single_instance(paths: &Paths) -> tauri::plugin::TauriPlugin<tauri::Wry> {
    let builder = tauri_plugin_single_instance::Builder::new()
        .callback(|app, _arguments, _folder| window::show(app));
    // On D-Bus the name is the user's; whoever moves our home wants another app.
    #[cfg(target_os = "linux")]
    let builder = builder.dbus_id(places::bus_name(paths));
    #[cfg(not(target_os = "linux"))]
    let _ = paths;
    builder.build()
}

/// The system ends us so when its user logs out: nobody is there to be asked.
fn quit_on_signals(app: &AppHandle) {
    let app = app.clone();
    tauri::async_runtime::spawn(async move {
        match asked_to_end().await {
            Ok(()) => app.exit(0),
            Err(error) => tracing::warn!("signals are not heard: {error}"),
        }
    });
}

#[cfg(unix)]
async fn asked_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut end, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn asked_to_end() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Whether a program may drive the window: never in a build for users, unless it was built for that.
fn may_be_automated() -> bool {
    cfg!(debug_assertions) || cfg!(feature = "automation")
}

/// Log to a file; settings say how much.
fn start_log(environment: &Environment, paths: &Paths) -> anyhow::Result<()> {
    let file = log_file::LogFile::open(&paths.logs)
        .with_context(|| format!("cannot write the log in {}", paths.logs.display()))?;
    let level = Settings::load(paths, environment).0.log_level;
    let filter = tracing_subscriber::EnvFilter::new(level.filter());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(file)
        .with_ansi(false)
        .with_target(false)
        .init();
    Ok(())
}

#[expect(
    clippy::print_stderr,
    reason = "whoever starts the app in a terminal reads it there"
)]
fn say(text: &str) {
    eprintln!("{text}");
}
