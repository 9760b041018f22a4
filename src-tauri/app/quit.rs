//! Ending the app: asked once when clients would lose something, in order always.

use std::sync::atomic::{AtomicBool, Ordering};

use tauri::AppHandle;
use tauri_plugin_dialog::{DialogExt as _, MessageDialogButtons, MessageDialogKind};

/// Clients named in the question; more are counted.
const NAMED_MAX: usize = 4;

/// Whether the question is on the screen.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Quit, after asking if `clients` are attached.
pub(crate) fn ask(app: &AppHandle, clients: &[String]) {
    let Some(question) = question(clients) else {
        app.exit(0);
        return;
    };
    if ASKING.swap(true, Ordering::AcqRel) {
        return;
    }
    let quits = app.clone();
    app.dialog()
        .message(question)
        .title("Quit Runbridge?")
        .kind(MessageDialogKind::Warning)
        .buttons(MessageDialogButtons::OkCancelCustom(
            "Quit".to_owned(),
            "Cancel".to_owned(),
        ))
        .show(move |confirmed| {
            ASKING.store(false, Ordering::Release);
            if confirmed {
                quits.exit(0);
            }
        });
}

/// What to ask; nothing if nobody loses anything.
fn question(clients: &[String]) -> Option<String> {
    let mut names: Vec<&str> = clients
        .iter()
        .map(|name| if name.is_empty() { "a client" } else { name })
        .collect();
    names.sort_unstable();
    names.dedup();
    let (subject, their) = match names.as_slice() {
        [] => return None,
        [one] => (format!("{one} is connected."), "its"),
        [first @ .., last] if names.len() <= NAMED_MAX => (
            format!("{} and {last} are connected.", first.join(", ")),
            "their",
        ),
        many => {
            let (named, rest) = many.split_at(NAMED_MAX - 1);
            let rest = rest.len();
            (
                format!("{} and {rest} others are connected.", named.join(", ")),
                "their",
            )
        }
    };
    Some(format!(
        "{subject} Quitting stops {their} runs and loses {their} Python variables. What the model \
         remembers is kept."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(clients: &[&str]) -> Option<String> {
        let clients: Vec<String> = clients.iter().map(|&name| name.to_owned()).collect();
        question(&clients)
            .map(|question| question.split(" Quitting").next().unwrap_or("").to_owned())
    }

    #[test]
    fn the_question_names_who_loses_something() {
        assert_eq!(asked(&[]), None);
        assert_eq!(
            asked(&["cursor", "cursor"]).as_deref(),
            Some("cursor is connected.")
        );
        assert_eq!(asked(&[""]).as_deref(), Some("a client is connected."));
        assert_eq!(
            asked(&["cursor", "claude", "zed"]).as_deref(),
            Some("claude, cursor and zed are connected.")
        );
        assert_eq!(
            asked(&["a", "b", "c", "d", "e"]).as_deref(),
            Some("a, b, c and 2 others are connected.")
        );
    }
}
