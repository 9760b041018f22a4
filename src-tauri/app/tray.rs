//! The tray: what `menu.rs` says, put into the system's menu. Lines that stay are changed in place, so
//! that an open menu does not flicker; only submenus whose lines are others are filled anew.

mod menu;

use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use runbridge_core::paths::{Os, Paths};
use runbridge_core::status::TrayIcon;
use tauri::image::Image;
use tauri::menu::{CheckMenuItem, IsMenuItem, Menu, MenuItem, PredefinedMenuItem, Submenu};
use tauri::tray::TrayIconBuilder;
use tauri::{AppHandle, Manager as _, Theme, Wry};

pub(crate) use menu::{Action, Shown, of};

const ID: &str = "main";

/// The tray as it was last drawn.
struct Drawn {
    shown: Shown,
    dark: bool,
    menu: Menu<Wry>,
    lines: Vec<Line>,
}

/// A line of the system's menu.
enum Line {
    Fixed,
    Item(MenuItem<Wry>),
    Check(CheckMenuItem<Wry>),
    Menu(Submenu<Wry>, Vec<Line>),
}

/// Put the icon into the tray. `clicked` is told what the user asks for.
pub(crate) fn make(
    app: &AppHandle,
    paths: &Paths,
    clicked: impl Fn(&AppHandle, Action) + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let shown = menu::starting();
    let dark = panel_is_dark(app);
    let menu = Menu::new(app)?;
    let lines = fill(app, &shown.items, &|item| menu.append(item))?;
    TrayIconBuilder::with_id(ID)
        .icon(icon(shown.icon, dark))
        .icon_as_template(true)
        .tooltip(&shown.tooltip)
        .menu(&menu)
        // The file that the system's panel reads the icon from.
        .temp_dir_path(paths.runtime.join("tray"))
        .on_menu_event(
            move |app, event| match serde_json::from_str(event.id().as_ref()) {
                Ok(action) => clicked(app, action),
                Err(error) => tracing::error!(%error, "a line of the tray means nothing"),
            },
        )
        .build(app)
        .context("the system has no tray")?;
    app.manage(Mutex::new(Drawn {
        shown,
        dark,
        menu,
        lines,
    }));
    Ok(())
}

/// Have the tray show `shown`. Returns at once; the main thread draws.
pub(crate) fn draw(app: &AppHandle, shown: Shown) {
    let on_main = app.clone();
    let drawing = app.run_on_main_thread(move || {
        if let Err(error) = draw_now(&on_main, shown) {
            tracing::error!("the tray cannot be drawn: {error:#}");
        }
    });
    if let Err(error) = drawing {
        tracing::debug!("the tray is gone: {error}");
    }
}

/// The system's panel may have turned dark or light.
pub(crate) fn redraw(app: &AppHandle) {
    if let Some(drawn) = app.try_state::<Mutex<Drawn>>() {
        let shown = lock(&drawn).shown.clone();
        draw(app, shown);
    }
}

fn draw_now(app: &AppHandle, shown: Shown) -> anyhow::Result<()> {
    let Some(state) = app.try_state::<Mutex<Drawn>>() else {
        return Ok(());
    };
    let tray = app.tray_by_id(ID).context("the tray is gone")?;
    let mut drawn = lock(&state);
    let dark = panel_is_dark(app);
    if (shown.icon, dark) != (drawn.shown.icon, drawn.dark) {
        tray.set_icon_with_as_template(Some(icon(shown.icon, dark)), true)?;
    }
    if shown.tooltip != drawn.shown.tooltip {
        tray.set_tooltip(Some(&shown.tooltip))?;
    }
    if is_same_shape(&drawn.lines, &drawn.shown.items, &shown.items) {
        let old = std::mem::take(&mut drawn.shown.items);
        let menu = drawn.menu.clone();
        update(app, &menu, &mut drawn.lines, &old, &shown.items)?;
    } else {
        while drawn.menu.remove_at(0)?.is_some() {}
        let menu = drawn.menu.clone();
        drawn.lines = fill(app, &shown.items, &|item| menu.append(item))?;
    }
    drawn.shown = shown;
    drawn.dark = dark;
    Ok(())
}

/// Whether the lines can take the new items without one being added or removed. What is inside a
/// submenu does not matter.
fn is_same_shape(lines: &[Line], old: &[menu::Item], new: &[menu::Item]) -> bool {
    use menu::Item;
    lines.len() == new.len()
        && old.len() == new.len()
        && old.iter().zip(new).all(|pair| match pair {
            (Item::Text(_), Item::Text(_)) | (Item::Separator, Item::Separator) => true,
            (Item::Click { action: old, .. }, Item::Click { action: new, .. })
            | (Item::Check { action: old, .. }, Item::Check { action: new, .. }) => old == new,
            (Item::Menu { name: old, .. }, Item::Menu { name: new, .. }) => old == new,
            _ => false,
        })
}

fn update(
    app: &AppHandle,
    menu: &Menu<Wry>,
    lines: &mut [Line],
    old: &[menu::Item],
    new: &[menu::Item],
) -> anyhow::Result<()> {
    use menu::Item;
    for (place, ((line, old), new)) in lines.iter_mut().zip(old).zip(new).enumerate() {
        match (line, old, new) {
            (
                Line::Menu(submenu, lines),
                Item::Menu {
                    label: old_label,
                    items: old_items,
                    ..
                },
                Item::Menu { label, items, .. },
            ) => {
                if old_label != label && cfg!(target_os = "linux") {
                    // GTK's menus do not take another label for a submenu, so it is another submenu.
                    menu.remove_at(place)?;
                    let (made, made_lines) = submenu_of(app, label, items)?;
                    menu.insert(&made, place)?;
                    (*submenu, *lines) = (made, made_lines);
                    continue;
                }
                if old_label != label {
                    submenu.set_text(escaped(label))?;
                }
                if is_same_shape(lines, old_items, items) {
                    for ((line, old), new) in lines.iter().zip(old_items).zip(items) {
                        set(line, old, new)?;
                    }
                } else {
                    while submenu.remove_at(0)?.is_some() {}
                    *lines = fill(app, items, &|item| submenu.append(item))?;
                }
            }
            (line, old, new) => set(line, old, new)?,
        }
    }
    Ok(())
}

fn set(line: &Line, old: &menu::Item, new: &menu::Item) -> anyhow::Result<()> {
    use menu::Item;
    match (line, new) {
        (Line::Item(line), Item::Text(label) | Item::Click { label, .. }) if old != new => {
            line.set_text(escaped(label))?;
        }
        (
            Line::Check(line),
            Item::Check {
                label,
                checked,
                enabled,
                ..
            },
        ) => {
            if old != new {
                line.set_text(escaped(label))?;
                line.set_enabled(*enabled)?;
            }
            // A click has changed it already, even if what it asked for was refused.
            line.set_checked(*checked)?;
        }
        _ => {}
    }
    Ok(())
}

fn submenu_of(
    app: &AppHandle,
    label: &str,
    items: &[menu::Item],
) -> anyhow::Result<(Submenu<Wry>, Vec<Line>)> {
    let submenu = Submenu::new(app, escaped(label), true)?;
    let lines = fill(app, items, &|item| submenu.append(item))?;
    Ok((submenu, lines))
}

fn fill(
    app: &AppHandle,
    items: &[menu::Item],
    append: &dyn Fn(&dyn IsMenuItem<Wry>) -> tauri::Result<()>,
) -> anyhow::Result<Vec<Line>> {
    use menu::Item;
    items
        .iter()
        .map(|item| {
            Ok(match item {
                Item::Text(label) => {
                    let item = MenuItem::new(app, escaped(label), false, None::<&str>)?;
                    append(&item)?;
                    Line::Item(item)
                }
                Item::Separator => {
                    append(&PredefinedMenuItem::separator(app)?)?;
                    Line::Fixed
                }
                Item::Click { label, action } => {
                    let id = serde_json::to_string(action)?;
                    let item = MenuItem::with_id(app, id, escaped(label), true, None::<&str>)?;
                    append(&item)?;
                    Line::Item(item)
                }
                Item::Check {
                    label,
                    action,
                    checked,
                    enabled,
                } => {
                    let id = serde_json::to_string(action)?;
                    let label = escaped(label);
                    let item =
                        CheckMenuItem::with_id(app, id, label, *enabled, *checked, None::<&str>)?;
                    append(&item)?;
                    Line::Check(item)
                }
                Item::Menu { label, items, .. } => {
                    let (submenu, lines) = submenu_of(app, label, items)?;
                    append(&submenu)?;
                    Line::Menu(submenu, lines)
                }
            })
        })
        .collect()
}

/// A label as the menu takes it: a single `&` would mark a shortcut.
fn escaped(label: &str) -> String {
    label.replace('&', "&&")
}

fn icon(state: TrayIcon, dark: bool) -> Image<'static> {
    match (state, dark) {
        (TrayIcon::Idle, false) => tauri::include_image!("icons/tray-idle.png"),
        (TrayIcon::Idle, true) => tauri::include_image!("icons/tray-idle-dark.png"),
        (TrayIcon::Active, false) => tauri::include_image!("icons/tray-active.png"),
        (TrayIcon::Active, true) => tauri::include_image!("icons/tray-active-dark.png"),
        (TrayIcon::Attention, false) => tauri::include_image!("icons/tray-attention.png"),
        (TrayIcon::Attention, true) => tauri::include_image!("icons/tray-attention-dark.png"),
    }
}

fn panel_is_dark(app: &AppHandle) -> bool {
    let theme = app
        .get_webview_window(crate::window::LABEL)
        .and_then(|window| window.theme().ok());
    let desktop = app.state::<Desktop>();
    is_dark(Os::CURRENT, desktop.0.as_deref(), theme)
}

/// `XDG_CURRENT_DESKTOP`, as it was at the start.
pub(crate) struct Desktop(pub(crate) Option<String>);

/// Whether the icon lies on a dark ground. macOS colours it itself. The panel of GNOME is dark in every
/// theme, and so is the task bar of Windows unless its user wants light; no system tells us directly.
fn is_dark(os: Os, desktop: Option<&str>, theme: Option<Theme>) -> bool {
    let gnome = desktop.is_some_and(|desktop| desktop.split(':').any(|name| name == "GNOME"));
    match os {
        Os::Macos => false,
        Os::Linux if gnome => true,
        Os::Linux => theme == Some(Theme::Dark),
        Os::Windows => theme != Some(Theme::Light),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_icon_stands_out_from_the_panel() {
        assert!(is_dark(Os::Linux, Some("ubuntu:GNOME"), Some(Theme::Light)));
        assert!(!is_dark(Os::Linux, Some("KDE"), None));
        assert!(is_dark(Os::Linux, Some("KDE"), Some(Theme::Dark)));
        assert!(is_dark(Os::Windows, None, None));
        assert!(!is_dark(Os::Windows, None, Some(Theme::Light)));
        assert!(!is_dark(Os::Macos, None, Some(Theme::Dark)));
    }
}
