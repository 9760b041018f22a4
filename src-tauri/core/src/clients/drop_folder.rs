//! `~/MCPs/*.json` and `~/.config/mcp/servers/*.json`: one or more servers per file, in any shape.
//!
//! Files of the folder itself, by name. Hidden files, backups and folders inside are left alone.

use super::client::{Client, Place};
use super::explicit::{PASTED, any_shape};

/// The drop folders.
pub(super) const CLIENT: Client = Client {
    id: "drop-folder",
    name: "Drop folder",
    dialect: PASTED,
    target: None,
    places: |search| {
        search
            .drop_folders()
            .iter()
            .flat_map(|folder| search.files_in(folder, is_config))
            .map(Place::user)
            .collect()
    },
    read: any_shape,
};

fn is_config(name: &str) -> bool {
    !name.starts_with('.') && name.to_ascii_lowercase().ends_with(".json")
}
