//! The folders of `src` form layers: code imports only from the layers below its own.
//!
//! Documentation and test code are exempt: they may name what is above them.

use std::fs;
use std::path::{Path, PathBuf};

/// The layers from the bottom to the top. Folders of the same layer don't import from each other.
const LAYERS: &[&[&str]] = &[
    &["json", "parts"],
    &["events", "random", "sources", "timeline", "tokio_runtime"],
    &["blocking", "endpoint", "metrics", "stats"],
    &["mesh"],
    &["directory", "topics"],
    &["runtime"],
    &["reply"],
    &["durable", "objects"],
];

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All files of code below `folder`, without those that only tests use.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The module of a file: `src/queue/store.rs` is `["queue", "store"]`.
fn module(file: &Path) -> Vec<String> {
    let module = file.strip_prefix(source()).unwrap().with_extension("");
    module.iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The source with comments and test items blanked. Lines keep their numbers.
fn code(source: &str) -> String {
    let mut code = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let content = line.trim_start();
        if content == "#[cfg(test)]" {
            let item_end = format!("{}}}", &line[..line.len() - content.len()]);
            code.push('\n');
            for line in lines.by_ref() {
                code.push('\n');
                if line == item_end || line.ends_with(';') {
                    break;
                }
            }
            continue;
        }
        if !content.starts_with("//") {
            code.push_str(line.split(" // ").next().unwrap());
        }
        code.push('\n');
    }
    code
}

/// The names at the front of what follows `crate::`: one, or those of a group in braces.
fn first_names(path: &str) -> Vec<&str> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').count();
    let Some(group) = path.strip_prefix('{') else { return vec![&path[..name(path)]] };
    let (mut names, mut depth, mut expects_name) = (Vec::new(), 0, true);
    for (place, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            _ if expects_name && !letter.is_whitespace() => {
                names.push(&group[place..place + name(&group[place..])]);
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

/// The names of the crate's root that a module uses, each with its line.
fn uses<'a>(code: &'a str, module: &[String]) -> Vec<(usize, &'a str)> {
    let to_root = "super::".repeat(module.len());
    let mut uses = Vec::new();
    for start in ["crate::", to_root.as_str()] {
        for (place, _) in code.match_indices(start) {
            // `$crate` in a macro names what its caller imports.
            let before = code[..place].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
                continue;
            }
            let line = code[..place].matches('\n').count() + 1;
            let names = first_names(&code[place + start.len()..]).into_iter();
            uses.extend(names.filter(|name| *name != "super").map(|name| (line, name)));
        }
    }
    uses.sort_unstable();
    uses
}

/// The imports of a module that point up or sideways, in words.
fn wrong_imports(file: &str, source: &str, module: &[String]) -> Vec<String> {
    let folder = &module[0];
    let own = layer(folder);
    let code = code(source);
    let wrong = |(line, used): (usize, &str)| {
        let fault = match (layer(used), own) {
            _ if used == folder => return None,
            (Some(used), Some(own)) if used < own => return None,
            (Some(_), Some(_)) => "which is not below it",
            (None, _) => "which is not a folder of a layer: name the folder that defines it",
            (_, None) => "but is in no layer: add it to LAYERS",
        };
        Some(format!("{file}:{line}: `{folder}` imports from `{used}`, {fault}"))
    };
    uses(&code, module).into_iter().filter_map(wrong).collect()
}

#[test]
fn imports_point_down() {
    let root = source().join("lib.rs");
    let mut wrong = Vec::new();
    for file in files(&source()).into_iter().filter(|file| *file != root) {
        let source = fs::read_to_string(&file).unwrap();
        wrong.extend(wrong_imports(&file.display().to_string(), &source, &module(&file)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_folder_is_in_a_layer() {
    for file in files(&source()) {
        let folder = module(&file).remove(0);
        assert!(folder == "lib" || layer(&folder).is_some(), "add `{folder}` to LAYERS");
    }
}

#[test]
fn an_import_that_points_up_is_found_with_its_line() {
    let source = "\
//! See [`Reply`](crate::reply::Reply).
use std::fmt;
use crate::{
    endpoint::{Endpoint, reply},
    objects,
};
use crate::runtime::Runtime; // crate::reply
use super::super::durable;
use super::port;
fn f(inbox: crate::mesh::Inbox, name: fiber_crate::reply::X) {}
#[cfg(test)]
mod tests {
    use crate::reply::Reply;
}
fn g() { crate::parts::f() }
";
    let module = ["mesh", "route"].map(String::from);
    assert_eq!(
        wrong_imports("route.rs", source, &module),
        [
            "route.rs:3: `mesh` imports from `objects`, which is not below it",
            "route.rs:7: `mesh` imports from `runtime`, which is not below it",
            "route.rs:8: `mesh` imports from `durable`, which is not below it",
        ]
    );
}
