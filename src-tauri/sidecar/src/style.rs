//! How text looks on a terminal. Colour only there, and never when `NO_COLOR` is set.

use std::io::{IsTerminal, Write};

/// Whether escape codes may go to this stream.
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
        && runbridge_core::paths::Environment::of_process()
            .get("NO_COLOR")
            .is_none()
}

/// What a piece of text is.
#[derive(Clone, Copy)]
pub(crate) enum Tone {
    /// It works.
    Good,
    /// It works with a reservation.
    Warn,
    /// It does not work.
    Bad,
    /// Less important.
    Dim,
    /// A heading or a name.
    Strong,
}

/// `text` for stdout, coloured if that is a terminal.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    painted(tone, text, is_coloured(&std::io::stdout()))
}

fn painted(tone: Tone, text: &str, coloured: bool) -> String {
    if !coloured {
        return text.to_owned();
    }
    let code = match tone {
        Tone::Good => 32,
        Tone::Warn => 33,
        Tone::Bad => 31,
        Tone::Dim => 2,
        Tone::Strong => 1,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Print a line to stdout. A reader that has gone away (`| head`) ends the output quietly.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Print an error to stderr.
pub(crate) fn error(text: &str) {
    let stderr = std::io::stderr();
    let label = painted(Tone::Bad, "error:", is_coloured(&stderr));
    let _ = writeln!(stderr.lock(), "{label} {text}");
}

/// Print a line to stderr.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Print a warning to stderr.
pub(crate) fn warning(text: &str) {
    let stderr = std::io::stderr();
    let label = painted(Tone::Warn, "warning:", is_coloured(&stderr));
    let _ = writeln!(stderr.lock(), "{label} {text}");
}

/// Print what is being done to stderr.
pub(crate) fn note(text: &str) {
    let stderr = std::io::stderr();
    let text = painted(Tone::Dim, text, is_coloured(&stderr));
    let _ = writeln!(stderr.lock(), "{text}");
}
