//! Random documents survive outside our key.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::{Format, Section, levels_missing, parse, put, take};

const SECTION: Section = Section {
    keys: &["mcpServers"],
    list: false,
};

/// A JSON value in random spelling: white space, comments, numbers as people write them.
fn json(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("1.50".to_owned()),
        Just("1e3".to_owned()),
        Just("-0".to_owned()),
        "[a-zäß ]{0,6}".prop_map(|text| format!("\"{text}\"")),
        Just("\"} // \\\" /* {\"".to_owned()),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    prop_oneof![
        leaf,
        object(depth, Vec::new()),
        (proptest::collection::vec(json(depth - 1), 0..3), gap())
            .prop_map(|(items, gap)| { format!("[{gap}{}]", items.join(&format!(",{gap}"))) }),
    ]
    .boxed()
}

fn gap() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" ".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n\t".to_owned()),
        Just("\n    ".to_owned()),
        Just(" // \"a\": {\n".to_owned()),
        Just("/* } , */".to_owned()),
        Just("/* \n */ ".to_owned()),
    ]
}

/// An object with these members among random ones.
fn object(depth: u32, fixed: Vec<(String, BoxedStrategy<String>)>) -> BoxedStrategy<String> {
    let random = proptest::collection::vec(("[b-f]{1,4}", json(depth - 1)), 0..4);
    let values: Vec<BoxedStrategy<String>> = fixed.iter().map(|(_, value)| value.clone()).collect();
    let names: Vec<String> = fixed.into_iter().map(|(name, _)| name).collect();
    (
        random,
        values,
        proptest::collection::vec(gap(), 24),
        any::<bool>(),
    )
        .prop_flat_map(move |(random, values, gaps, trailing)| {
            let mut members: Vec<(String, String)> = random;
            members.extend(names.clone().into_iter().zip(values));
            (Just(members).prop_shuffle(), Just(gaps), Just(trailing))
        })
        .prop_map(|(members, gaps, trailing)| {
            let mut gaps = gaps.iter().cycle();
            let mut gap = || gaps.next().unwrap().as_str();
            let mut text = format!("{{{}", gap());
            let count = members.len();
            for (index, (name, value)) in members.into_iter().enumerate() {
                let _ = write!(text, "\"{name}\"{}:{}{value}{}", gap(), gap(), gap());
                if index + 1 < count || trailing {
                    let _ = write!(text, ",{}", gap());
                }
            }
            text.push('}');
            text
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_document_survives_outside_our_key(
        text in prop_oneof![
            object(2, vec![("mcpServers".to_owned(), object(2, Vec::new()))]),
            object(2, Vec::new()),
        ],
        before in gap(),
        after in gap(),
    ) {
        let text = format!("{before}{text}{after}");
        let made = levels_missing(&parse(&text, Format::Json).unwrap().root, SECTION);
        let entry = json!({"command": "/x/y", "args": []});
        let with = put(&text, Format::Json, SECTION, "ours", &entry).unwrap();
        // What was there is there, in its order: the old text is what is left when the new one is skipped.
        let mut rest = with.as_bytes();
        let visible = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
        for byte in visible {
            let at = rest.iter().position(|&other| other == byte);
            prop_assert!(at.is_some(), "{text:?} became {with:?}");
            rest = &rest[at.unwrap() + 1..];
        }
        prop_assert_eq!(put(&with, Format::Json, SECTION, "ours", &entry).unwrap(), with.clone());
        let without = take(&with, Format::Json, SECTION, "ours", made).unwrap();
        let visible = |text: &str| text.split_whitespace().collect::<String>();
        prop_assert_eq!(visible(&without), visible(&text));
    }
}
