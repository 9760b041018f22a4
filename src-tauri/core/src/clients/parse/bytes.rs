//! A file's bytes and the text they are, whatever wrote them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Position, Unreadable};

/// Claude Code keeps histories and caches in the file that holds its servers, so some are long.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The content of a regular file of bounded size; a pipe or a device would never end.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let too_large =
        || std::io::Error::other(format!("it is larger than {} MiB", FILE_BYTES_MAX >> 20));
    if metadata.len() > FILE_BYTES_MAX {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        Err(too_large())
    } else {
        Ok(bytes)
    }
}

/// UTF-8 with or without a mark, or UTF-16 with one, as Windows tools write.
pub(super) fn decode(bytes: Vec<u8>) -> Result<String, Unreadable> {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, odd) = rest.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        match String::from_utf16(&units) {
            Ok(text) if odd.is_empty() => Ok(text),
            _ => Err(super::unreadable(
                "it begins like UTF-16 text but is not".to_owned(),
            )),
        }
    };
    match bytes.as_slice() {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
        _ => {
            let mut text = String::from_utf8(bytes).map_err(|error| {
                let good = error
                    .as_bytes()
                    .get(..error.utf8_error().valid_up_to())
                    .unwrap_or_default();
                let line = good.split(|&byte| byte == b'\n').count();
                let column = 1 + good.iter().rev().take_while(|&&byte| byte != b'\n').count();
                Unreadable {
                    position: Some(Position {
                        line: u32::try_from(line).unwrap_or(u32::MAX),
                        column: u32::try_from(column).unwrap_or(u32::MAX),
                    }),
                    message: "it is not UTF-8 text; save it as UTF-8".to_owned(),
                }
            })?;
            if text.starts_with('\u{FEFF}') {
                text.drain(..'\u{FEFF}'.len_utf8());
            }
            Ok(text)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    #[test]
    fn marks_and_utf16_are_read() {
        let text = "{\"ä\": 1}";
        let with_mark = |mark: &[u8], body: Vec<u8>| [mark, &body].concat();
        for bytes in [
            with_mark(b"\xEF\xBB\xBF", text.as_bytes().to_vec()),
            with_mark(
                b"\xFF\xFE",
                text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            ),
            with_mark(
                b"\xFE\xFF",
                text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            ),
        ] {
            assert_eq!(decode(bytes).unwrap(), text);
        }
        assert_eq!(
            decode(b"{\n\"\xE4\"".to_vec()).unwrap_err().position,
            Some(Position { line: 2, column: 2 })
        );
    }

    #[test]
    fn a_huge_file_and_a_folder_are_refused_before_reading() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            read(folder.path())
                .unwrap_err()
                .to_string()
                .contains("not a file")
        );
        let path = folder.path().join("huge.json");
        File::create(&path)
            .unwrap()
            .set_len(FILE_BYTES_MAX + 1)
            .unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .contains("larger than 16 MiB")
        );
    }
}
