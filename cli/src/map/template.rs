//! The command of a map, with placeholders for the item.

use anyhow::bail;
use fiber_core::nearest;

use super::items::{Fields, Item};

/// A command, of which each task gets the words with its item in them.
#[derive(Debug)]
pub(super) struct Template {
    words: Vec<Vec<Part>>,
}

#[derive(Debug, PartialEq)]
enum Part {
    Literal(Vec<u8>),
    /// `{}`
    Item,
    /// `{.}`
    WithoutExtension,
    /// `{/}`
    FileName,
    /// `{//}`
    Directory,
    /// `{/.}`
    FileNameWithoutExtension,
    /// `{#}`
    Number,
    /// `{name}`, the column of this index.
    Column(usize),
}

impl Template {
    /// Parses the words of a command. `columns` are the names of a CSV's columns.
    ///
    /// # Errors
    /// A column that does not exist, or no column at all.
    pub(super) fn parse(words: &[Vec<u8>], columns: Option<&[String]>) -> anyhow::Result<Template> {
        let mut parsed = Vec::with_capacity(words.len() + 1);
        for word in words {
            parsed.push(parse_word(word, columns)?);
        }
        let placeholders = || parsed.iter().flatten().filter(|part| !part.is_literal());
        match columns {
            Some(columns) if !placeholders().any(|part| matches!(part, Part::Column(_))) => bail!(
                "the command names no column: write `{{{}}}` where its value belongs (the columns \
                 are {})",
                columns.first().map_or("name", |name| name),
                columns.join(", ")
            ),
            None if placeholders().next().is_none() => parsed.push(vec![Part::Item]),
            _ => {}
        }
        Ok(Template { words: parsed })
    }

    /// Returns the program, if it is the same for all items.
    pub(super) fn program(&self) -> Option<Vec<u8>> {
        let mut program = Vec::new();
        for part in self.words.first()? {
            let Part::Literal(bytes) = part else { return None };
            program.extend_from_slice(bytes);
        }
        Some(program)
    }

    /// Returns the command for an item.
    pub(super) fn expand(&self, item: &Item) -> Vec<Vec<u8>> {
        let expand_word = |parts: &Vec<Part>| {
            let mut word = Vec::new();
            parts.iter().for_each(|part| part.append(item, &mut word));
            word
        };
        self.words.iter().map(expand_word).collect()
    }
}

impl Part {
    fn is_literal(&self) -> bool {
        matches!(self, Part::Literal(_))
    }

    fn append(&self, item: &Item, word: &mut Vec<u8>) {
        match (self, &item.fields) {
            (Part::Literal(bytes), _) => word.extend_from_slice(bytes),
            (Part::Number, _) => word.extend_from_slice(item.number.to_string().as_bytes()),
            (Part::Column(index), Fields::Row(row)) => word.extend_from_slice(&row[*index]),
            (Part::Item, Fields::Text(text)) => word.extend_from_slice(text),
            (Part::WithoutExtension, Fields::Text(text)) => {
                word.extend_from_slice(without_extension(text));
            }
            (Part::FileName, Fields::Text(text)) => word.extend_from_slice(file_name(text)),
            (Part::Directory, Fields::Text(text)) => word.extend_from_slice(directory(text)),
            (Part::FileNameWithoutExtension, Fields::Text(text)) => {
                word.extend_from_slice(without_extension(file_name(text)));
            }
            // The parser gives columns to rows, and the others to texts.
            (_, Fields::Row(_)) | (Part::Column(_), Fields::Text(_)) => {}
        }
    }
}

fn parse_word(word: &[u8], columns: Option<&[String]>) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let (mut at, mut closing) = (0, 0);
    while at < word.len() {
        if word[at] == b'{' && closing <= at {
            // Is sought once for all braces before it: a word may have 128 KiB of them.
            let next = word[at..].iter().position(|byte| *byte == b'}');
            closing = next.map_or(word.len(), |next| at + next);
        }
        let part = match word[at] {
            b'{' if closing < word.len() => placeholder(&word[at + 1..closing], columns)?,
            _ => None,
        };
        match part {
            Some(part) => {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(part);
                at = closing + 1;
            }
            None => {
                literal.push(word[at]);
                at += 1;
            }
        }
    }
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

/// Returns the placeholder of this name, or `None` if the braces stand for themselves.
fn placeholder(name: &[u8], columns: Option<&[String]>) -> anyhow::Result<Option<Part>> {
    let Some(columns) = columns else {
        return Ok(Some(match name {
            b"" => Part::Item,
            b"." => Part::WithoutExtension,
            b"/" => Part::FileName,
            b"//" => Part::Directory,
            b"/." => Part::FileNameWithoutExtension,
            b"#" => Part::Number,
            _ => return Ok(None),
        }));
    };
    if name == b"#" {
        return Ok(Some(Part::Number));
    }
    let name = String::from_utf8_lossy(name);
    if let Some(index) = columns.iter().position(|column| *column == name) {
        return Ok(Some(Part::Column(index)));
    }
    // A program such as `awk '{print $1}'` has braces of its own.
    if name.contains(|c: char| c.is_whitespace() || "{$;,\"'".contains(c)) {
        return Ok(None);
    }
    let remedy = match nearest(&name, columns.iter().map(String::as_str)) {
        Some(similar) => format!("did you mean `{{{similar}}}`?"),
        None => format!("the columns are {}", columns.join(", ")),
    };
    bail!("the CSV has no column for `{{{name}}}`: {remedy}")
}

fn without_extension(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| matches!(byte, b'.' | b'/')) {
        Some(dot) if path[dot] == b'.' => &path[..dot],
        _ => path,
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// Returns the directory of a path as `dirname` does.
fn directory(path: &[u8]) -> &[u8] {
    let trimmed = without_slashes(path);
    match trimmed.iter().rposition(|byte| *byte == b'/') {
        _ if trimmed.is_empty() && !path.is_empty() => b"/",
        None => b".",
        Some(slash) => match without_slashes(&trimmed[..slash]) {
            b"" => b"/",
            directory => directory,
        },
    }
}

fn without_slashes(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    fn expand(words: &[&str], item: &str) -> Vec<String> {
        let template = Template::parse(&bytes(words), None).unwrap();
        let item = Item { number: 7, fields: Fields::Text(item.into()) };
        template.expand(&item).into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn placeholders_are_those_of_gnu_parallel() {
        // The output of parallel 20221122 for these items.
        for (item, without, name, directory, name_without) in [
            ("a/b.tar.gz", "a/b.tar", "b.tar.gz", "a", "b.tar"),
            ("b.txt", "b", "b.txt", ".", "b"),
            ("plain", "plain", "plain", ".", "plain"),
            ("x.y/plain", "x.y/plain", "plain", "x.y", "plain"),
            ("/top", "/top", "top", "/", "top"),
            ("a//b", "a//b", "b", "a", "b"),
            ("a/b/", "a/b/", "", "a", ""),
            ("a/.x", "a/", ".x", "a", ""),
            (".x", "", ".x", ".", ""),
        ] {
            assert_eq!(
                expand(&["p", "{}", "{.}", "{/}", "{//}", "{/.}", "{#}"], item),
                ["p", item, without, name, directory, name_without, "7"]
            );
        }
    }

    #[test]
    fn placeholders_are_parts_of_words_and_may_repeat() {
        assert_eq!(expand(&["p{}", "--in={}.x", "{}{}"], "a"), ["pa", "--in=a.x", "aa"]);
    }

    #[test]
    fn without_a_placeholder_the_item_is_the_last_word() {
        assert_eq!(expand(&["p", "-x", ""], "a"), ["p", "-x", "", "a"]);
        // Braces that are no placeholder stay.
        assert_eq!(
            expand(&["awk", "{print $1}", "{x}", "{"], "a")[1..],
            ["{print $1}", "{x}", "{", "a"]
        );
    }

    #[test]
    fn a_word_may_be_as_long_as_the_kernel_takes() {
        // With the square of the length it would take minutes.
        for long in ["y".repeat(128 << 10), "{".repeat(128 << 10)] {
            assert_eq!(expand(&["p", &long], "a"), ["p", &long, "a"]);
        }
    }

    #[test]
    fn items_need_not_be_utf_8() {
        let template = Template::parse(&bytes(&["p", "{.}"]), None).unwrap();
        let item = Item { number: 1, fields: Fields::Text(b"\xff/\xfe.x".to_vec()) };
        assert_eq!(template.expand(&item), [b"p".to_vec(), b"\xff/\xfe".to_vec()]);
    }

    #[test]
    fn columns_are_named() {
        let columns = ["seed".to_string(), "learning rate".to_string()];
        let parse = |words: &[&str]| Template::parse(&bytes(words), Some(&columns));
        let template = parse(&["p", "--seed={seed}", "{learning rate}", "{#}"]).unwrap();
        let item = Item { number: 2, fields: Fields::Row(bytes(&["5", "0.1"])) };
        assert_eq!(template.expand(&item), bytes(&["p", "--seed=5", "0.1", "2"]));

        let refused = |words: &[&str]| parse(words).unwrap_err().to_string();
        assert!(refused(&["p", "{sed}"]).contains("did you mean `{seed}`?"));
        assert!(refused(&["p", "{zzz}"]).contains("the columns are seed, learning rate"));
        assert!(refused(&["p"]).contains("names no column"));
        assert!(refused(&["p", "{}"]).contains("no column for `{}`"));
    }

    #[test]
    fn the_program_is_known_unless_it_depends_on_the_item() {
        let program = |words: &[&str]| Template::parse(&bytes(words), None).unwrap().program();
        assert_eq!(program(&["p", "{}"]), Some(b"p".to_vec()));
        assert_eq!(program(&["{}", "x"]), None);
        assert_eq!(program(&["bin/{}"]), None);
    }
}
