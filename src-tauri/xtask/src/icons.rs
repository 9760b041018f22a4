//! `cargo xtask icons`: draw every icon of the app from its source. The pictures are in the
//! repository, so that a build needs no drawing program; this makes them anew after a change.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::machine;
use crate::shell::{root, run, say};

/// Below this, fine lines of the large drawing would vanish.
const SMALL_BELOW: u32 = 48;

/// Pictures that the packages of Linux and the window take by name.
const PICTURES: &[(&str, u32)] = &[
    ("32x32.png", 32),
    ("128x128.png", 128),
    ("128x128@2x.png", 256),
    ("icon.png", 512),
];

/// Sizes within `icon.ico`; Windows picks the nearest.
const ICO_SIZES: &[u32] = &[16, 24, 32, 48, 64, 256];

/// Kinds within `icon.icns`, each a PNG of that size.
const ICNS_KINDS: &[(&[u8; 4], u32)] = &[
    (b"icp4", 16),
    (b"icp5", 32),
    (b"icp6", 64),
    (b"ic07", 128),
    (b"ic08", 256),
    (b"ic09", 512),
    (b"ic10", 1024),
];

/// States of the tray's icon.
const TRAY: &[&str] = &["idle", "active", "attention"];

/// Twice the size of a usual panel, for dense screens.
const TRAY_SIZE: u32 = 44;

/// `cargo xtask icons`.
pub(crate) fn draw_all() -> anyhow::Result<()> {
    if !machine::on_path("rsvg-convert") {
        machine::install(&["librsvg2-bin"])?;
    }
    let icons = root().join("icons");
    let work = tempfile::tempdir()?;
    for (name, size) in PICTURES {
        std::fs::write(icons.join(name), app_icon(*size, work.path())?)?;
    }
    let mut entries = Vec::new();
    for size in ICO_SIZES {
        entries.push((*size, app_icon(*size, work.path())?));
    }
    std::fs::write(icons.join("icon.ico"), ico(&entries))?;
    let mut entries = Vec::new();
    for (kind, size) in ICNS_KINDS {
        entries.push((**kind, app_icon(*size, work.path())?));
    }
    std::fs::write(icons.join("icon.icns"), icns(&entries))?;
    for state in TRAY {
        let source = std::fs::read_to_string(icons.join(format!("source/tray-{state}.svg")))?;
        // For panels as light and as dark as the window's own grounds.
        for (suffix, colour) in [("", "#222324"), ("-dark", "#f4f4f2")] {
            let drawing = work.path().join("tray.svg");
            std::fs::write(&drawing, source.replace("currentColor", colour))?;
            let picture = render(&drawing, TRAY_SIZE, work.path())?;
            std::fs::write(icons.join(format!("tray-{state}{suffix}.png")), picture)?;
        }
    }
    say(format_args!("drawn in {}", icons.display()));
    Ok(())
}

fn app_icon(size: u32, work: &Path) -> anyhow::Result<Vec<u8>> {
    let name = if size < SMALL_BELOW {
        "small.svg"
    } else {
        "icon.svg"
    };
    render(&root().join("icons/source").join(name), size, work)
}

fn render(drawing: &Path, size: u32, work: &Path) -> anyhow::Result<Vec<u8>> {
    let picture = work.join("picture.png");
    let size = size.to_string();
    run(Command::new("rsvg-convert")
        .args(["--width", &size, "--height", &size, "--output"])
        .args([&picture, drawing]))?;
    std::fs::read(&picture).with_context(|| format!("cannot read {}", picture.display()))
}

/// A Windows icon file whose pictures are PNGs.
fn ico(pictures: &[(u32, Vec<u8>)]) -> Vec<u8> {
    const HEADER: usize = 6;
    const ENTRY: usize = 16;
    let mut file = vec![0, 0, 1, 0];
    file.extend((pictures.len() as u16).to_le_bytes());
    let mut offset = HEADER + ENTRY * pictures.len();
    for (size, picture) in pictures {
        // 256 is written as 0: the field is one byte.
        let side = *size as u8;
        file.extend([side, side, 0, 0, 1, 0, 32, 0]);
        file.extend((picture.len() as u32).to_le_bytes());
        file.extend((offset as u32).to_le_bytes());
        offset += picture.len();
    }
    for (_, picture) in pictures {
        file.extend(picture);
    }
    file
}

/// A macOS icon file.
fn icns(pictures: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    const HEAD: usize = 8;
    let length: usize = pictures.iter().map(|(_, it)| HEAD + it.len()).sum();
    let mut file = b"icns".to_vec();
    file.extend(((HEAD + length) as u32).to_be_bytes());
    for (kind, picture) in pictures {
        file.extend(kind);
        file.extend(((HEAD + picture.len()) as u32).to_be_bytes());
        file.extend(picture);
    }
    file
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "four bytes are four bytes")]

    use super::*;

    #[test]
    fn each_picture_of_an_icon_file_is_where_its_entry_says() {
        let pictures = [(16, b"small".to_vec()), (256, b"larger".to_vec())];
        let file = ico(&pictures);
        for (index, (size, picture)) in pictures.iter().enumerate() {
            let entry = &file[6 + 16 * index..][..16];
            let number = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
            let (length, offset) = (number(8) as usize, number(12) as usize);
            assert_eq!(u32::from(entry[0]), size % 256);
            assert_eq!(&file[offset..offset + length], picture);
        }
        let file = icns(&[(*b"ic07", b"picture".to_vec())]);
        assert_eq!(file, b"icns\0\0\0\x17ic07\0\0\0\x0fpicture");
    }
}
