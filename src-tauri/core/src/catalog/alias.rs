//! Names of servers, tools and parameters made into Python identifiers.

use std::collections::{HashMap, HashSet};

use unicode_ident::{is_xid_continue, is_xid_start};
use unicode_normalization::UnicodeNormalization as _;

/// What Python reserves. Soft keywords (`match`, `type`) are fine as names.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// The identifier for one name, not yet told apart from others.
///
/// Python compares identifiers in normal form KC, so that is the form of an alias too.
pub(crate) fn identifier(name: &str) -> String {
    let mut identifier: String = name
        .nfkc()
        .map(|c| {
            if c == '_' || is_xid_continue(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    if !identifier.starts_with(|c| c == '_' || is_xid_start(c)) {
        identifier.insert(0, '_');
    }
    if KEYWORDS.contains(&identifier.as_str()) {
        identifier.push('_');
    }
    identifier
}

/// An alias for each name, all different, in the order given.
///
/// A name that is an identifier keeps it. The others get theirs in the order of the names, not of
/// the list, so that a list in another order gives the same aliases.
pub(crate) fn assign<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.into_iter().collect();
    let mut aliases: HashMap<&str, String> = HashMap::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut others = Vec::new();
    for name in &names {
        if identifier(name) == *name {
            taken.insert((*name).to_owned());
            aliases.insert(name, (*name).to_owned());
        } else {
            others.push(*name);
        }
    }
    others.sort_unstable();
    others.dedup();
    for name in others {
        let wanted = identifier(name);
        let mut alias = wanted.clone();
        let mut number = 2;
        while taken.contains(&alias) {
            alias = format!("{}_{number}", wanted.trim_end_matches('_'));
            number += 1;
        }
        taken.insert(alias.clone());
        aliases.insert(name, alias);
    }
    names
        .iter()
        .map(|name| aliases.get(name).cloned().unwrap_or_default())
        .collect()
}

/// Up to three of `names` that are close to `wanted`, closest first.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let plain = |name: &str| {
        name.chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    // What is compared costs the product of its lengths; names are short, or not worth comparing.
    let wanted: String = plain(wanted).chars().take(64).collect();
    let mut close: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let plain: String = plain(name).chars().take(64).collect();
            let distance = strsim::osa_distance(&wanted, &plain);
            let close = distance <= 1 + wanted.chars().count() / 4;
            let within = wanted.len() >= 4
                && (plain.contains(&wanted) || plain.len() >= 4 && wanted.contains(&plain));
            (close || within).then_some((distance, name))
        })
        .collect();
    close.sort_unstable();
    close.dedup();
    close
        .into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        for (name, alias) in [
            ("get-profile", "get_profile"),
            ("admin.tools.list", "admin_tools_list"),
            ("2fast", "_2fast"),
            ("ns/tool", "ns_tool"),
            ("with space", "with_space"),
            ("CamelCase", "CamelCase"),
            ("x:y", "x_y"),
            ("class", "class_"),
            ("match", "match"),
            ("ünï", "ünï"),
            ("日本語", "日本語"),
            ("ﬁle", "file"),
            ("x²", "x2"),
            ("a🎉", "a_"),
            ("", "_"),
            ("$top", "_top"),
        ] {
            assert_eq!(identifier(name), alias, "{name}");
        }
    }

    #[test]
    fn clashes_are_told_apart_whatever_the_order() {
        assert_eq!(
            assign(["get-x", "get_x", "get.x"]),
            ["get_x_2", "get_x", "get_x_3"]
        );
        assert_eq!(
            assign(["get.x", "get-x", "get_x"]),
            ["get_x_3", "get_x_2", "get_x"]
        );
        assert_eq!(assign(["a-b", "a_b", "a_b_2"]), ["a_b_3", "a_b", "a_b_2"]);
    }

    #[test]
    fn near_names_come_closest_first() {
        assert_eq!(
            nearest("creat_isue", ["create_issue", "list_issues", "echo"]),
            ["create_issue"]
        );
        assert_eq!(
            nearest("issue", ["create_issue", "list_issues", "echo"]),
            ["list_issues", "create_issue"]
        );
        assert!(nearest("zzz", ["create_issue", "echo"]).is_empty());
    }
}
