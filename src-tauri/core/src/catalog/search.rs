//! Ranking of tools for a query in the words of a model.
//!
//! BM25 over what a tool is called, what it says it does and what its parameters are called. Each
//! server's list has an index of its own, made once; a query joins those that it may see, so a list
//! that changes costs only itself. The same input gives the same order. It knows words, not servers'
//! states.

use std::collections::HashMap;

use super::signature::parameters;
use crate::upstream::Tool;

/// Words of a query; a model sends a handful, anything longer is not a query.
const QUERY_WORDS_MAX: usize = 32;

/// Words of one description that count: what matters comes first, and no description may drown the
/// others by its length.
const DESCRIPTION_WORDS_MAX: usize = 400;

/// How much a word in each field weighs.
const NAME: f32 = 3.0;
const TITLE: f32 = 1.5;
const SERVER: f32 = 1.0;
const DESCRIPTION: f32 = 1.0;
const PARAMETER: f32 = 0.5;

/// BM25: how soon more of the same word stops to matter, and how much long texts are held back.
const SATURATION: f32 = 1.2;
const LENGTH: f32 = 0.4;

/// What a word is worth that only begins like the one asked for, or is a typing mistake away.
const PREFIX: f32 = 0.6;
const TYPO: f32 = 0.5;

/// What it is worth that the name as a whole says what was asked.
const WHOLE_NAME: f32 = 4.0;

/// Words that every question has.
const STOP_WORDS: [&str; 36] = [
    "a", "an", "and", "any", "are", "at", "be", "by", "can", "do", "doe", "for", "from", "how",
    "i", "in", "into", "is", "it", "me", "my", "of", "on", "or", "please", "that", "the", "there",
    "this", "to", "tool", "want", "what", "which", "with", "you",
];

/// The words of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct SearchIndex {
    words: HashMap<String, Word>,
    /// Words of each tool's name.
    names: Vec<Vec<String>>,
    /// Weighted length of each tool.
    lengths: Vec<f32>,
}

/// One word, and where it is.
#[derive(Debug)]
struct Word {
    postings: Vec<Posting>,
    /// In characters.
    length: usize,
    letters: u64,
}

#[derive(Clone, Copy, Debug)]
struct Posting {
    tool: u32,
    weight: f32,
}

/// A tool that fits, by its place in the list of indexes and in its own list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    pub(crate) index: usize,
    pub(crate) tool: usize,
    pub(crate) score: f32,
}

impl SearchIndex {
    pub(crate) fn new(server: &str, tools: &[Tool]) -> Self {
        let mut index = Self::default();
        let server = words(server);
        for (number, tool) in tools.iter().enumerate() {
            let mut weights: HashMap<String, f32> = HashMap::new();
            let mut length = 0.0;
            let mut add = |words: &mut dyn Iterator<Item = String>, weight: f32| {
                for word in words {
                    length += weight;
                    *weights.entry(word).or_default() += weight;
                }
            };
            let name = words(&tool.name);
            add(&mut name.iter().cloned(), NAME);
            add(&mut server.iter().cloned(), SERVER);
            if let Some(title) = &tool.title {
                add(
                    &mut words(title).into_iter().take(DESCRIPTION_WORDS_MAX),
                    TITLE,
                );
            }
            if let Some(description) = &tool.description {
                add(
                    &mut words(description).into_iter().take(DESCRIPTION_WORDS_MAX),
                    DESCRIPTION,
                );
            }
            for parameter in parameters(&tool.input_schema).iter().take(100) {
                add(&mut words(&parameter.name).into_iter(), PARAMETER);
            }
            for (word, weight) in weights {
                let known = index.words.entry(word).or_insert_with_key(|word| Word {
                    postings: Vec::new(),
                    length: word.chars().count(),
                    letters: letters(word),
                });
                known.postings.push(Posting {
                    tool: number as u32,
                    weight,
                });
            }
            index.names.push(name);
            index.lengths.push(length);
        }
        index
    }

    fn postings(&self, word: &str) -> &[Posting] {
        self.words.get(word).map_or(&[], |word| &word.postings)
    }
}

/// The best `limit` tools for `query`, best first; equal ones in the order of the indexes.
pub(crate) fn search(query: &str, indexes: &[&SearchIndex], limit: usize) -> Vec<Hit> {
    let asked = query_words(query);
    let tools: usize = indexes.iter().map(|index| index.lengths.len()).sum();
    if asked.is_empty() || tools == 0 {
        return Vec::new();
    }
    let total: f32 = indexes.iter().flat_map(|index| &index.lengths).sum();
    let average = (total / tools as f32).max(1.0);
    let mut scores: Vec<Vec<f32>> = indexes
        .iter()
        .map(|index| vec![0.0; index.lengths.len()])
        .collect();
    // For the name as a whole, a word asked for stands for the words that it was taken for.
    let mut named: Vec<Vec<f32>> = scores.clone();
    for word in &asked {
        let meant = meanings(word, indexes);
        let found: usize = meant
            .iter()
            .map(|(known, _)| frequency(known, indexes))
            .sum();
        let rarity = ((tools as f32 - found as f32 + 0.5).max(0.5) / (found as f32 + 0.5)).ln_1p();
        // A tool gains from the best meaning of a word, not from all of them.
        let mut best: HashMap<(usize, u32), f32> = HashMap::new();
        for (known, worth) in &meant {
            for (place, index) in indexes.iter().enumerate() {
                for posting in index.postings(known) {
                    let length = index.lengths[posting.tool as usize] / average;
                    let bounded = posting.weight * (SATURATION + 1.0)
                        / (posting.weight + SATURATION * (1.0 - LENGTH + LENGTH * length));
                    let gain = worth * rarity * bounded;
                    let entry = best.entry((place, posting.tool)).or_default();
                    *entry = entry.max(gain);
                    if index.names[posting.tool as usize]
                        .iter()
                        .any(|word| word == known)
                    {
                        let name = &mut named[place][posting.tool as usize];
                        *name = name.max(0.0) + worth / meant.len().max(1) as f32;
                    }
                }
            }
        }
        for ((place, tool), gain) in best {
            scores[place][tool as usize] += gain;
        }
    }
    let mut hits = Vec::new();
    for (place, index) in indexes.iter().enumerate() {
        for tool in 0..index.lengths.len() {
            let score = scores[place][tool];
            if score <= 0.0 {
                continue;
            }
            let matched = named[place][tool].min(asked.len() as f32);
            let of_query = matched / asked.len() as f32;
            let of_name = (matched / index.names[tool].len().max(1) as f32).min(1.0);
            hits.push(Hit {
                index: place,
                tool,
                score: score + WHOLE_NAME * of_query * of_name,
            });
        }
    }
    hits.sort_by(|one, other| {
        other
            .score
            .total_cmp(&one.score)
            .then(one.index.cmp(&other.index))
            .then(one.tool.cmp(&other.tool))
    });
    hits.truncate(limit);
    hits
}

fn frequency(word: &str, indexes: &[&SearchIndex]) -> usize {
    indexes.iter().map(|index| index.postings(word).len()).sum()
}

/// The known words that a word asked for may mean, each with what it is worth: itself, words that
/// begin with it, and where there is neither, words a typing mistake away.
fn meanings<'a>(asked: &'a str, indexes: &[&'a SearchIndex]) -> Vec<(&'a str, f32)> {
    let mut meant: Vec<(&str, f32)> = Vec::new();
    if frequency(asked, indexes) > 0 {
        meant.push((asked, 1.0));
    }
    let known = || indexes.iter().flat_map(|index| &index.words);
    let length = asked.chars().count();
    if length >= 4 {
        let longer =
            known().filter(|(word, _)| word.len() > asked.len() && word.starts_with(asked));
        meant.extend(longer.map(|(word, _)| (word.as_str(), PREFIX)));
    }
    if meant.is_empty() && length >= 3 {
        let allowed = if length <= 5 { 1 } else { 2 };
        let letters = letters(asked);
        for (word, about) in known() {
            // Cheap tests first: most words differ in length or letters by more than is allowed.
            if about.length.abs_diff(length) <= allowed
                && (about.letters ^ letters).count_ones() as usize <= 2 * allowed
                && strsim::osa_distance(word, asked) <= allowed
            {
                meant.push((word, TYPO));
            }
        }
    }
    // The same word of several servers is one meaning.
    meant.sort_by(|one, other| one.0.cmp(other.0));
    meant.dedup_by(|one, other| one.0 == other.0);
    meant
}

/// Which letters a word has, one bit each.
fn letters(word: &str) -> u64 {
    word.bytes()
        .fold(0, |letters, byte| letters | 1 << (byte % 64))
}

fn query_words(query: &str) -> Vec<String> {
    let query: String = query.chars().take(1_000).collect();
    let mut all = words(&query);
    let mut seen = std::collections::HashSet::new();
    all.retain(|word| seen.insert(word.clone()));
    let telling: Vec<String> = all
        .iter()
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
        .cloned()
        .collect();
    let mut asked = if telling.is_empty() { all } else { telling };
    asked.truncate(QUERY_WORDS_MAX);
    asked
}

/// The words of a text or name, in lower case, without their endings: split at anything that is
/// neither letter nor digit, and inside `camelCase`, `HTTPServer` and between letters and digits.
/// Scripts without spaces give pairs of characters.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|run| !run.is_empty())
    {
        let chars: Vec<char> = run.chars().collect();
        if chars.iter().any(|c| is_ideograph(*c)) {
            if chars.len() == 1 {
                words.push(run.to_owned());
            }
            words.extend(
                chars
                    .windows(2)
                    .map(|pair| pair.iter().collect::<String>().to_lowercase()),
            );
            continue;
        }
        let mut word = String::new();
        for (at, c) in chars.iter().enumerate() {
            if at > 0 && starts_word(&chars, at) {
                words.push(stem(&std::mem::take(&mut word)));
            }
            word.extend(c.to_lowercase());
        }
        words.push(stem(&word));
    }
    words
}

fn starts_word(chars: &[char], at: usize) -> bool {
    let (before, here) = (chars[at - 1], chars[at]);
    let lower_to_upper = before.is_lowercase() && here.is_uppercase();
    let end_of_capitals = before.is_uppercase()
        && here.is_uppercase()
        && chars.get(at + 1).is_some_and(|next| next.is_lowercase());
    let digits = before.is_numeric() != here.is_numeric();
    lower_to_upper || end_of_capitals || digits
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30ff | 0x3400..=0x9fff | 0xac00..=0xd7af | 0x20000..=0x3ffff)
}

/// English endings, taken off only where what remains is still a word: `issues` and `issue`,
/// `creating`, `created` and `create` become one.
fn stem(word: &str) -> String {
    if word.len() <= 3 || !word.is_ascii() {
        return word.to_owned();
    }
    let without = |ending: &str| word.strip_suffix(ending).filter(|rest| rest.len() >= 3);
    if let Some(rest) = without("ies") {
        return format!("{rest}y");
    }
    if let Some(rest) = ["sses", "shes", "ches", "xes", "zes"]
        .iter()
        .find_map(|ending| word.ends_with(ending).then(|| &word[..word.len() - 2]))
    {
        return rest.to_owned();
    }
    let singular = match without("s") {
        Some(rest) if !rest.ends_with(['s', 'u', 'i']) => rest,
        _ => word,
    };
    let shorter = ["ing", "ed"].iter().find_map(|ending| {
        singular
            .strip_suffix(ending)
            .filter(|rest| rest.len() >= 3 && has_vowel(rest))
    });
    let base = match shorter.map(|rest| (rest, rest.as_bytes())) {
        // `running` is of `run`, `calling` of `call`.
        Some((rest, [.., before, last]))
            if rest.len() >= 4 && before == last && !b"lsz".contains(last) =>
        {
            &rest[..rest.len() - 1]
        }
        Some((rest, _)) => rest,
        None => singular,
    };
    // `create` meets `creating`: both lose the `e`.
    base.strip_suffix('e')
        .filter(|rest| rest.len() >= 3)
        .unwrap_or(base)
        .to_owned()
}

fn has_vowel(word: &str) -> bool {
    word.contains(['a', 'e', 'i', 'o', 'u', 'y'])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tool(name: &str, description: &str, parameters: &[&str]) -> Tool {
        let properties: serde_json::Map<String, Value> = parameters
            .iter()
            .map(|name| ((*name).to_owned(), Value::Bool(true)))
            .collect();
        Tool {
            name: name.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            input_schema: json!({"type": "object", "properties": properties}),
            output_schema: None,
            annotations: None,
            needs_task: false,
        }
    }

    fn catalog() -> Vec<(&'static str, Vec<Tool>)> {
        vec![
            (
                "github",
                vec![
                    tool(
                        "list_issues",
                        "List issues of a repository, with filters",
                        &["owner", "repo", "state"],
                    ),
                    tool(
                        "create_issue_comment",
                        "Add a comment to an issue",
                        &["issue_number", "body"],
                    ),
                    tool(
                        "create_issue",
                        "Open a new issue in a GitHub repository",
                        &["owner", "repo", "title", "body"],
                    ),
                    tool(
                        "create_pull_request",
                        "Create a new pull request",
                        &["head", "base"],
                    ),
                    tool("search_code", "Search for code across repositories", &["q"]),
                    tool(
                        "get_file_contents",
                        "Get the contents of a file or directory",
                        &["path"],
                    ),
                ],
            ),
            (
                "filesystem",
                vec![
                    tool(
                        "read_file",
                        "Read the complete contents of a file",
                        &["path"],
                    ),
                    tool(
                        "write_file",
                        "Create or overwrite a file",
                        &["path", "content"],
                    ),
                    tool("list_directory", "List files and directories", &["path"]),
                    tool(
                        "searchFiles",
                        "Recursively search for files matching a pattern",
                        &["pattern"],
                    ),
                ],
            ),
            (
                "everything",
                vec![
                    tool("echo", "Echoes back the input", &["message"]),
                    tool("get-sum", "Adds two numbers", &["a", "b"]),
                ],
            ),
            (
                "time",
                vec![
                    tool(
                        "get_current_time",
                        "Get current time in a specific timezone",
                        &["timezone"],
                    ),
                    tool(
                        "convert_time",
                        "Convert time between timezones",
                        &["source_timezone"],
                    ),
                ],
            ),
            (
                "slack",
                vec![tool(
                    "post_message",
                    "Send a message to a channel",
                    &["channel_id", "text"],
                )],
            ),
        ]
    }

    fn best(query: &str) -> Vec<String> {
        let catalog = catalog();
        let indexes: Vec<SearchIndex> = catalog
            .iter()
            .map(|(server, tools)| SearchIndex::new(server, tools))
            .collect();
        search(query, &indexes.iter().collect::<Vec<_>>(), 3)
            .into_iter()
            .map(|hit| catalog[hit.index].1[hit.tool].name.clone())
            .collect()
    }

    #[test]
    fn the_right_tool_comes_first() {
        for (query, first) in [
            ("create issue", "create_issue"),
            ("creating an issue on github", "create_issue"),
            ("ehco", "echo"),
            ("how do I read a file?", "read_file"),
            ("search files", "searchFiles"),
            ("add two numbers", "get-sum"),
            ("what is the current time", "get_current_time"),
            ("convert timezone", "convert_time"),
            ("send a message to a slack channel", "post_message"),
            ("comment on an issue", "create_issue_comment"),
            ("list dir", "list_directory"),
            ("overwrite", "write_file"),
            ("create_pull_request", "create_pull_request"),
            ("pull requsts", "create_pull_request"),
            ("get-sum", "get-sum"),
        ] {
            assert_eq!(
                best(query).first().map(String::as_str),
                Some(first),
                "{query}: {:?}",
                best(query)
            );
        }
    }

    #[test]
    fn nothing_fits_nonsense() {
        assert!(best("zzzzqqqq").is_empty());
        assert!(best("").is_empty());
        assert!(best("?!").is_empty());
    }

    #[test]
    fn words_are_split_where_readers_see_them() {
        assert_eq!(
            words("getHTTPServer2-name_x.y"),
            ["get", "http", "server", "2", "nam", "x", "y"]
        );
        assert_eq!(
            words("Issues creating created creates create"),
            ["issu", "creat", "creat", "creat", "creat"]
        );
        assert_eq!(words("日本語"), ["日本", "本語"]);
        assert_eq!(
            words("queries running boxes status class"),
            ["query", "run", "box", "status", "class"]
        );
    }

    #[test]
    fn a_thousand_tools_are_searched_in_no_time() {
        let lists: Vec<Vec<Tool>> = (0..40)
            .map(|server| {
                (0..27)
                    .map(|number| {
                        let description = (0..60)
                            .map(|word| {
                                format!("word{}", (server * 31 + number * 7 + word * 13) % 5000)
                            })
                            .collect::<Vec<_>>()
                            .join(" ");
                        tool(
                            &format!("verb{number}_thing{server}"),
                            &description,
                            &["alpha", "beta", "gamma"],
                        )
                    })
                    .collect()
            })
            .collect();
        let indexes: Vec<SearchIndex> = lists
            .iter()
            .map(|tools| SearchIndex::new("s", tools))
            .collect();
        let indexes: Vec<&SearchIndex> = indexes.iter().collect();
        // The fastest of several runs, so that a busy machine does not fail it.
        let fastest = (0..10)
            .map(|_| {
                let begun = std::time::Instant::now();
                let hits = search("misspeled wrod12 gamma thing3", &indexes, 5);
                assert_eq!(hits.len(), 5);
                begun.elapsed()
            })
            .min();
        assert!(
            fastest < Some(std::time::Duration::from_millis(100)),
            "{fastest:?}"
        );
    }
}
