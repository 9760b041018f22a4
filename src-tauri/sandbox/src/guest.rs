//! The Python that runs inside a sandbox: the sources, and the first message that carries them in.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::json;

/// What `python3 -c` runs. It reads [`boot_message`] from stdin and starts the runner from it.
pub(crate) const BOOT: &str = include_str!("guest/boot.py");

/// The modules that the boot program finds in the message, by name.
const MODULES: [(&str, &str); 11] = [
    ("calls", include_str!("guest/calls.py")),
    ("display", include_str!("guest/display.py")),
    ("door", include_str!("guest/door.py")),
    ("interrupts", include_str!("guest/interrupts.py")),
    ("output", include_str!("guest/output.py")),
    ("packages", include_str!("guest/packages.py")),
    ("report", include_str!("guest/report.py")),
    ("runner", include_str!("guest/runner.py")),
    ("runtime", include_str!("guest/runtime.py")),
    ("saving", include_str!("guest/saving.py")),
    ("values", include_str!("guest/values.py")),
];

/// The message that a guest reads before frames begin: a 4-byte big-endian length and JSON.
pub(crate) fn boot_message(rlimits: &BTreeMap<&'static str, u64>) -> Bytes {
    let json = json!({
        "modules": MODULES.into_iter().collect::<BTreeMap<_, _>>(),
        "config": { "rlimits": rlimits },
    });
    let json = json.to_string();
    let mut message = BytesMut::with_capacity(4 + json.len());
    message.put_u32(json.len() as u32);
    message.put_slice(json.as_bytes());
    message.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare has failed")]

    use super::*;

    #[test]
    fn every_module_of_the_guest_goes_in() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guest");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| {
                Some(
                    entry
                        .unwrap()
                        .file_name()
                        .to_str()?
                        .strip_suffix(".py")?
                        .to_owned(),
                )
            })
            .filter(|name| name != "boot")
            .collect();
        files.sort();
        assert_eq!(MODULES.map(|(name, _)| name).to_vec(), files);
    }

    #[test]
    fn the_message_is_its_length_and_json() {
        let message = boot_message(&BTreeMap::from([("nofile", 7)]));
        let (length, json) = message.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_be_bytes(*length) as usize, json.len());
        let json: serde_json::Value = serde_json::from_slice(json).unwrap();
        assert_eq!(json["config"], json!({"rlimits": {"nofile": 7}}));
        assert_eq!(json["modules"]["runner"], include_str!("guest/runner.py"));
    }
}
