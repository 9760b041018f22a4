//! How the model's Python sees tools: one mapping a tool, in three levels of detail.

use serde_json::{Map, Value, json};

use crate::catalog::{ServerName, ToolRef};

/// Characters of a description in a summary.
const SUMMARY_CHARS_MAX: usize = 200;

/// How much to say of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// What it is called.
    Name,
    /// Also what it is for and its signature.
    Summary,
    /// Also its parameters in words and its schemas.
    Full,
}

impl Detail {
    /// As the model writes it.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, String> {
        match text {
            None | Some("summary") => Ok(Self::Summary),
            Some("name") => Ok(Self::Name),
            Some("full") => Ok(Self::Full),
            Some(other) => Err(format!(
                "detail must be 'name', 'summary' or 'full', not '{other}'"
            )),
        }
    }
}

/// One tool.
pub(crate) fn tool(server: &ServerName, tool: &ToolRef, detail: Detail) -> Value {
    let mut doc = Map::new();
    doc.insert("server".to_owned(), json!(server.name));
    doc.insert("name".to_owned(), json!(tool.tool().name));
    doc.insert("alias".to_owned(), json!(tool.alias()));
    doc.insert(
        "python_name".to_owned(),
        json!(python_name(server, tool.alias())),
    );
    if detail == Detail::Name {
        return Value::Object(doc);
    }
    let description = if detail == Detail::Full {
        tool.docs()
    } else {
        summary(
            tool.tool()
                .description
                .as_deref()
                .or(tool.tool().title.as_deref())
                .unwrap_or(""),
        )
    };
    doc.insert("description".to_owned(), json!(description));
    doc.insert("signature".to_owned(), json!(tool.signature()));
    if detail == Detail::Full {
        doc.insert("schema".to_owned(), tool.tool().input_schema.clone());
        if let Some(output) = &tool.tool().output_schema {
            doc.insert("output_schema".to_owned(), output.clone());
        }
        if let Some(annotations) = &tool.tool().annotations {
            doc.insert("annotations".to_owned(), annotations.clone());
        }
    }
    Value::Object(doc)
}

/// `mcp_github.create_issue`
pub(crate) fn python_name(server: &ServerName, tool_alias: &str) -> String {
    format!("mcp_{}.{tool_alias}", server.alias)
}

/// The first paragraph, in one line and cut.
fn summary(description: &str) -> String {
    let paragraph = description.trim().split("\n\n").next().unwrap_or_default();
    let mut line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(SUMMARY_CHARS_MAX) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_one_line_of_the_first_paragraph() {
        assert_eq!(
            summary("  Create\n  an issue.\n\nLong story."),
            "Create an issue."
        );
        assert_eq!(summary(&"ä".repeat(300)), format!("{}…", "ä".repeat(200)));
    }
}
