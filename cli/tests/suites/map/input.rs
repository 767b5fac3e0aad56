//! Items, placeholders, and what is refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::Folder;

#[test]
fn items_are_arguments_lines_or_rows() {
    let folder = Folder::new();
    folder.write("lines", "a b\n\nc\n");
    folder.write("rows.csv", "name,seed\nx,1\n\"y, z\",2\n");
    let stdout = |arguments: &[&str]| folder.map(arguments).succeeded().stdout();
    assert_eq!(stdout(&["--", "echo", "<{}>", ":::", "a b", "c", ""]), "<a b>\n<c>\n<>\n");
    assert_eq!(stdout(&["echo", ":::", "a b", "c"]), "a b\nc\n");
    assert_eq!(stdout(&["--input", "lines", "echo", "{#}", "{}"]), "1 a b\n2 c\n");
    assert_eq!(stdout(&["--csv", "rows.csv", "echo", "{seed}:{name}"]), "1:x\n2:y, z\n");
    let input = folder.map_input(&["echo", "{.}"], b"a.txt\nb/c.d.e").succeeded();
    assert_eq!(input.stdout(), "a\nb/c.d\n");
    let input = folder.map_input(&["-0", "echo"], b"a\nb\0c\0").succeeded();
    assert_eq!(input.stdout(), "a\nb\nc\n");
}

#[test]
fn items_need_not_be_utf_8() {
    let folder = Folder::new();
    let name = OsStr::from_bytes(b"\xff name");
    std::fs::write(folder.0.path().join(name), "found").expect("there is room");
    let mut command = folder.command(&["--json", "cat", ":::"]);
    let output = super::Ended(command.arg(name).output().expect("it can be started")).succeeded();
    let line = &output.json()[0];
    assert_eq!((&line["stdout"], &line["item"]["hex"]), (&"found".into(), &"ff206e616d65".into()));
}

#[test]
fn a_dry_run_prints_what_a_shell_would_run() {
    let folder = Folder::new();
    let words = ["printf", "[%s]", "it's", "a  b", "$HOME", "{}"];
    let arguments = [&["--dry-run"], &words[..], &[":::", "x;y", "*"]].concat();
    let script = folder.map(&arguments).succeeded().stdout();
    assert_eq!(script.lines().count(), 2, "{script}");
    let shell = std::process::Command::new("sh").args(["-c", &script]).output();
    let printed = String::from_utf8(shell.expect("there is a sh").stdout).expect("it is text");
    assert_eq!(printed, "[it's][a  b][$HOME][x;y][it's][a  b][$HOME][*]");
    // Nothing runs, so nothing has to exist.
    let dry = folder.map(&["--dry-run", "no-such-program", ":::", "a"]).succeeded();
    assert_eq!(dry.stdout(), "no-such-program a\n");
}

#[test]
fn mistakes_are_explained_before_a_command_runs() {
    let folder = Folder::new();
    folder.write("good.csv", "a,b\n1,2\n");
    folder.write("nul", "a\nb\0c\n");
    folder.write("text", "no program");
    folder.write("empty", "");
    let refused = |code: i32, arguments: &[&str], words: &[&str]| {
        let ended = folder.map(arguments).failed(code, words);
        assert!(ended.stderr().starts_with("error: "), "{}", ended.stderr());
        assert_eq!(ended.stdout(), "");
    };
    refused(125, &[], &["no command"]);
    refused(125, &["echo", ":::"], &["no items after `:::`"]);
    refused(125, &["echo"], &["no items in standard input"]);
    refused(125, &["--input", "empty", "echo"], &["no items in `empty`"]);
    refused(125, &["echo", ":::", "a", ":::", "b"], &["more than one `:::`"]);
    refused(125, &["--input", "nul", "echo", ":::", "a"], &["`:::` and in --input"]);
    refused(125, &["--input", ".", "echo"], &["is a directory"]);
    refused(125, &["--csv", "good.csv", "echo", "{c}"], &["`{c}`", "the columns are a, b"]);
    refused(125, &["--timeout", "soon", "echo", ":::", "a"], &["--timeout", "10m"]);
    refused(125, &["--processes", "0", "echo", ":::", "a"], &["--processes"]);
    refused(125, &["--tiemout", "1s", "echo", ":::", "a"], &["--tiemout", "--timeout"]);
    refused(125, &["--namespace", "x", "echo", ":::", "a"], &["--namespace is for Kubernetes"]);
    refused(125, &["--output-dir", "text", "echo", ":::", "a"], &["`text` can't be used"]);
    refused(127, &["no-such-program", ":::", "a", "b"], &["`no-such-program` in PATH"]);
    refused(126, &["./text", ":::", "a", "b"], &["chmod +x"]);
}

#[test]
fn a_wrong_row_of_a_stream_ends_the_items() {
    let folder = Folder::new();
    let ended = folder.map_input(&["--csv", "-", "echo", "{a}"], b"a,b\n1,2\n3\n4,5\n");
    assert_eq!(ended.stdout(), "1\n");
    ended.failed(125, &["line 3 of standard input"]);
}
