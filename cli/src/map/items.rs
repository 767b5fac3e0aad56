//! The items of a map: arguments, lines, or the rows of a CSV.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use csv::ByteRecord;
use fiber_core::Patient;

/// An item with its number, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) fields: Fields,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fields {
    Text(Vec<u8>),
    /// The fields of a row, one for each column.
    Row(Vec<Vec<u8>>),
}

/// Where items come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Arguments(Vec<Vec<u8>>),
    /// The lines of a file that end with this byte, or of standard input.
    Lines(Input, u8),
    Csv(Input),
}

#[derive(Clone, Debug)]
pub(super) enum Input {
    Standard,
    File(PathBuf),
}

impl Input {
    /// Returns the input that an option names: `-` is standard input.
    pub(super) fn of(path: &Path) -> Input {
        if path == Path::new("-") { Input::Standard } else { Input::File(path.to_path_buf()) }
    }

    fn open(&self) -> anyhow::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Input::Standard => Box::new(Patient(io::stdin())),
            Input::File(path) => {
                let unreadable = || format!("the items in `{}` can't be read", path.display());
                let file = File::open(path).with_context(unreadable)?;
                if file.metadata().with_context(unreadable)?.is_dir() {
                    bail!("`{}` is a directory: name a file with the items", path.display());
                }
                Box::new(file)
            }
        })
    }

    fn name(&self) -> String {
        match self {
            Input::Standard => "standard input".to_string(),
            Input::File(path) => format!("`{}`", path.display()),
        }
    }

    /// Returns whether it can be read twice.
    fn is_regular(&self) -> bool {
        matches!(self, Input::File(path) if path.is_file())
    }
}

impl Source {
    /// Opens the source. A file is first read once to its end, so that a mistake in it is found
    /// before the first command runs, and that the number of items is known.
    pub(super) fn open(&self) -> anyhow::Result<Items> {
        let mut items = self.items()?;
        if self.is_regular() {
            let mut count = 0;
            for item in &mut items {
                item?;
                count += 1;
            }
            items = self.items()?;
            items.left = Some(count);
        }
        Ok(items)
    }

    fn is_regular(&self) -> bool {
        match self {
            Source::Arguments(_) => false,
            Source::Lines(input, _) | Source::Csv(input) => input.is_regular(),
        }
    }

    fn items(&self) -> anyhow::Result<Items> {
        let (name, left, reader) = match self {
            Source::Arguments(items) => {
                let reader = Reader::Arguments(items.clone().into_iter());
                ("the command line".to_string(), Some(items.len()), reader)
            }
            Source::Lines(input, separator) => {
                let lines = BufReader::new(input.open()?);
                (input.name(), None, Reader::Lines(Box::new(lines), *separator))
            }
            Source::Csv(input) => {
                let mut rows = csv::Reader::from_reader(input.open()?);
                let header = rows.byte_headers();
                let header = header.with_context(|| format!("{} can't be read", input.name()))?;
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                let columns: Vec<String> = header.iter().map(text).collect();
                if columns.is_empty() {
                    bail!("{} is empty: its first line has to name the columns", input.name());
                }
                (input.name(), None, Reader::Csv(Box::new(rows), columns))
            }
        };
        Ok(Items { name, reader, taken: 0, left, first: None })
    }
}

/// An iterator over items. An error is the last one.
pub(super) struct Items {
    /// The name of the source, for errors.
    name: String,
    reader: Reader,
    taken: u64,
    left: Option<usize>,
    /// The first item, if it was read ahead.
    first: Option<Item>,
}

enum Reader {
    Arguments(std::vec::IntoIter<Vec<u8>>),
    Lines(Box<dyn BufRead + Send>, u8),
    Csv(Box<csv::Reader<Box<dyn Read + Send>>>, Vec<String>),
    Ended,
}

impl Items {
    /// Returns the names of a CSV's columns.
    pub(super) fn columns(&self) -> Option<&[String]> {
        match &self.reader {
            Reader::Csv(_, columns) => Some(columns),
            _ => None,
        }
    }

    /// Waits until there is an item.
    ///
    /// # Errors
    /// The source has none, or the first one is wrong.
    pub(super) fn wait_for_first(&mut self) -> anyhow::Result<()> {
        let first = self.next().ok_or_else(|| {
            anyhow!(
                "there are no items in {}: give them after `:::`, on standard input, or in a file \
                 (`--input`)",
                self.name
            )
        })??;
        self.left = self.left.map(|left| left + 1);
        self.first = Some(first);
        Ok(())
    }

    fn read(&mut self) -> anyhow::Result<Option<Fields>> {
        let name = &self.name;
        let fields = match &mut self.reader {
            Reader::Ended => None,
            Reader::Arguments(items) => items.next().map(Fields::Text),
            Reader::Lines(lines, separator) => {
                let line = read_line(&mut **lines, *separator);
                line.with_context(|| format!("{name} can't be read"))?.map(Fields::Text)
            }
            Reader::Csv(rows, _) => {
                let mut row = ByteRecord::new();
                let is_row = rows.read_byte_record(&mut row).map_err(|error| explain(name, error));
                is_row?.then(|| Fields::Row(row.iter().map(<[u8]>::to_vec).collect()))
            }
        };
        let number = self.taken + 1;
        let has_nul = |bytes: &Vec<u8>| bytes.contains(&0);
        let is_wrong = match &fields {
            None => false,
            Some(Fields::Text(text)) => has_nul(text),
            Some(Fields::Row(row)) => row.iter().any(has_nul),
        };
        if is_wrong {
            bail!(
                "item {number} of {name} has a NUL byte, which no argument of a command can have: \
                 use `--null` if NUL bytes separate the items"
            );
        }
        Ok(fields)
    }
}

impl Iterator for Items {
    type Item = anyhow::Result<Item>;

    fn next(&mut self) -> Option<anyhow::Result<Item>> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let read = self.read();
        if let Ok(Some(_)) = &read {
            self.taken += 1;
        } else {
            self.reader = Reader::Ended;
        }
        let number = self.taken;
        read.map(|fields| fields.map(|fields| Item { number, fields })).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.unwrap_or(0), self.left)
    }
}

/// Reads a line that is not empty.
fn read_line(lines: &mut dyn BufRead, separator: u8) -> io::Result<Option<Vec<u8>>> {
    loop {
        let mut line = Vec::new();
        if lines.read_until(separator, &mut line)? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&separator) {
            line.pop();
        }
        if !line.is_empty() {
            return Ok(Some(line));
        }
    }
}

fn explain(name: &str, error: csv::Error) -> anyhow::Error {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            anyhow!(
                "line {line} of {name} has {len} fields, but the first line names {expected_len} \
                 columns: correct it, or quote the fields that contain commas"
            )
        }
        _ => anyhow::Error::from(error).context(format!("{name} can't be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> (tempfile::TempDir, Input) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items");
        std::fs::write(&path, bytes).unwrap();
        (folder, Input::File(path))
    }

    fn texts(source: &Source) -> Vec<Vec<u8>> {
        let text = |item: anyhow::Result<Item>| match item.unwrap().fields {
            Fields::Text(text) => text,
            Fields::Row(row) => row.join(&b'|'),
        };
        source.open().unwrap().map(text).collect()
    }

    #[test]
    fn lines_are_items_and_empty_ones_are_not() {
        let (_folder, input) = file(b"a\n\n b c\n\xff\nlast");
        let source = Source::Lines(input, b'\n');
        assert_eq!(texts(&source), [b"a".to_vec(), b" b c".to_vec(), vec![0xff], b"last".to_vec()]);
        assert_eq!(source.open().unwrap().size_hint(), (4, Some(4)));
    }

    #[test]
    fn nul_bytes_separate_items_or_are_refused() {
        let (_folder, input) = file(b"a\nb\0c");
        assert_eq!(texts(&Source::Lines(input.clone(), 0)), [b"a\nb".to_vec(), b"c".to_vec()]);
        let refused = Source::Lines(input, b'\n').open().err().unwrap().to_string();
        assert!(refused.contains("item 2 of") && refused.contains("--null"), "{refused}");
    }

    #[test]
    fn rows_are_items() {
        let (_folder, input) = file(b"\xef\xbb\xbfa,b\r\n1,\"x, y\"\r\n2,z\r\n");
        let source = Source::Csv(input);
        assert_eq!(source.open().unwrap().columns().unwrap(), ["a", "b"]);
        assert_eq!(texts(&source), [b"1|x, y".to_vec(), b"2|z".to_vec()]);
    }

    #[test]
    fn rows_with_too_few_or_too_many_fields_are_refused() {
        for row in ["1", "1,2,3"] {
            let (_folder, input) = file(format!("a,b\n1,2\n{row}\n").as_bytes());
            let refused = Source::Csv(input).open().err().unwrap().to_string();
            assert!(refused.contains("line 3 of") && refused.contains("2 columns"), "{refused}");
        }
        let (_folder, input) = file(b"");
        assert!(Source::Csv(input).open().err().unwrap().to_string().contains("is empty"));
    }

    #[test]
    fn unreadable_sources_are_named() {
        let missing = Source::Lines(Input::of(Path::new("/no/such")), b'\n');
        assert!(missing.open().err().unwrap().to_string().contains("`/no/such` can't be read"));
        let directory = Source::Lines(Input::of(Path::new("/")), b'\n');
        assert!(directory.open().err().unwrap().to_string().contains("is a directory"));
    }
}
