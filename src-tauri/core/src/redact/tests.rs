#![allow(clippy::unwrap_used, reason = "a failure here is the test's failure")]

use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redactor(values: &[&str]) -> Arc<Redactor> {
    let secrets: Vec<Secret> = values.iter().map(|value| Secret::new(*value)).collect();
    Arc::new(Redactor::new(&secrets))
}

fn streamed(redactor: &Arc<Redactor>, pieces: &[&[u8]]) -> String {
    let mut stream = redactor.stream();
    let mut out: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| stream.push(piece).into_owned())
        .collect();
    out.extend(stream.finish());
    String::from_utf8(out).unwrap()
}

const TRICKY: &str = "p\"ä/s s'w\\ö🎉rd+%";

#[test]
fn a_secret_is_found_in_every_form_in_which_it_usually_travels() {
    let redactor = redactor(&[TRICKY, "plain-secret-value"]);
    let forms = [
        TRICKY.to_owned(),
        serde_json::to_string(TRICKY).unwrap(),
        serde_json::to_string(&serde_json::to_string(TRICKY).unwrap()).unwrap(),
        r#"p\"\u00e4/s s'w\\\u00f6\ud83c\udf89rd+%"#.to_owned(),
        r#"p\"ä\/s s'w\\ö🎉rd+%"#.to_owned(),
        r#"p"ä/s s\'w\\ö🎉rd+%"#.to_owned(),
        "p%22%C3%A4%2Fs%20s%27w%5C%C3%B6%F0%9F%8E%89rd%2B%25".to_owned(),
        "p%22%c3%a4%2fs%20s%27w%5c%c3%b6%f0%9f%8e%89rd%2b%25".to_owned(),
        "p%22%C3%A4/s%20s%27w%5C%C3%B6%F0%9F%8E%89rd%2B%25".to_owned(),
        "p%22%C3%A4%2Fs+s%27w%5C%C3%B6%F0%9F%8E%89rd%2B%25".to_owned(),
    ];
    for form in forms {
        let clean = redactor.text(&form).replace(['\\', '"'], "");
        assert_eq!(clean, STARS, "{form}");
    }
    for before in ["", "a", "ab", "user:"] {
        let encoded = STANDARD.encode(format!("{before}{TRICKY}:and more"));
        let clean = redactor.text(&encoded).into_owned();
        let left = clean.replace(STARS, "");
        assert!(
            clean.contains(STARS) && left.len() + 20 < encoded.len(),
            "{encoded} -> {clean}"
        );
    }
    assert_eq!(
        redactor.text("a plain-secret-value, twice: plain-secret-value"),
        "a ***, twice: ***"
    );
}

#[test]
fn text_without_secrets_is_not_copied_and_short_values_are_left_alone() {
    let redactor = redactor(&["12345", "", "  dev  ", "sixsix"]);
    assert!(matches!(
        redactor.text("12345 dev"),
        Cow::Borrowed("12345 dev")
    ));
    assert_eq!(redactor.text("sixsix"), STARS);
    assert!(matches!(
        Redactor::default().text("anything"),
        Cow::Borrowed(_)
    ));
}

#[test]
fn lines_and_pieces_of_long_values_are_found() {
    let key = format!(
        "-----BEGIN KEY-----\n{}\n{}\n-----END KEY-----\n",
        "A1b2".repeat(16),
        "c3D4".repeat(16)
    );
    let long = "0123456789abcdef".repeat(500);
    let redactor = redactor(&[&key, &long]);
    assert_eq!(
        redactor.text(&format!(
            "  {}\r\n  {}\r\n",
            "A1b2".repeat(16),
            "c3D4".repeat(16)
        )),
        "  ***\r\n  ***\r\n"
    );
    let clean = redactor.text(&long).into_owned();
    assert_eq!(clean.replace('*', ""), "");
    assert!(redactor.pattern_bytes_max < 8 * PIECE_BYTES);
}

#[test]
fn json_stays_json_and_numbers_keep_their_spelling() {
    let redactor = redactor(&["secret-value", "12345678", "a\",\"b"]);
    let clean = |text: &str| {
        redactor
            .json_text(&RawValue::from_string(text.to_owned()).unwrap())
            .get()
            .to_owned()
    };
    assert_eq!(
        clean(r#"{"n": 1180591620717411303424, "s": "x secret-value"}"#),
        r#"{"n": 1180591620717411303424, "s": "x ***"}"#
    );
    assert_eq!(clean(r#"{"pin": 12345678}"#), r#"{"pin":"***"}"#);
    assert_eq!(
        clean(r#"["a","b"]"#),
        r#"["a","b"]"#,
        "two harmless strings whose border looks like one"
    );

    let mut value = json!({"secret-value": ["secret-value", 12_345_678, null, {"a": "b"}]});
    redactor.json(&mut value);
    assert_eq!(value, json!({"***": ["***", "***", null, {"a": "b"}]}));
}

#[test]
fn the_longest_of_overlapping_secrets_goes_whole() {
    let redactor = redactor(&["abcdef", "abcdefghij"]);
    assert_eq!(redactor.text("abcdefghij"), STARS);
    for cut in 0..=10 {
        let whole = b"abcdefghij";
        assert_eq!(
            streamed(&redactor, &[&whole[..cut], &whole[cut..]]),
            STARS,
            "{cut}"
        );
    }
}

#[test]
fn secrets_are_told_by_name_by_beginning_and_inside_urls() {
    let found = secrets_of(
        [
            ("GITHUB_TOKEN", "abcdefgh"),
            ("api-key", "ijklmnop"),
            ("SSH_KEY_PATH", "/home/me/.ssh/id"),
            ("SHORT_KEY", "dev"),
            ("HOME", "/home/me"),
            ("WHATEVER", "ghp_0123456789"),
            ("DATABASE", "postgres://me:p%40ssword@host:5432/db?x=1"),
            ("PLAIN_URL", "https://host/a:b@c"),
        ],
        [
            ("Authorization", "Bearer tok-tok-tok"),
            ("X-Api-Key", "key-key-key"),
            ("Accept", "application/json"),
        ],
    );
    let found: Vec<_> = found.iter().map(Secret::expose).collect();
    assert_eq!(
        found,
        [
            "abcdefgh",
            "ijklmnop",
            "ghp_0123456789",
            "p%40ssword",
            "Bearer tok-tok-tok",
            "tok-tok-tok",
            "key-key-key"
        ]
    );
}

proptest! {
    #[test]
    fn a_stream_cut_anywhere_gives_what_the_whole_text_gives(
        parts in prop::collection::vec(prop_oneof!["[a-c]{0,9}", Just("abcabc".to_owned()), Just("bcabcabca".to_owned())], 0..12),
        cuts in prop::collection::vec(0_usize..100, 0..8),
    ) {
        let redactor = redactor(&["abcabc", "bcabcabca"]);
        let text = parts.concat();
        let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(streamed(&redactor, &pieces), redactor.text(&text).into_owned());
    }
}
