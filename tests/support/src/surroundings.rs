//! Surroundings in which programs must work: the words of commands that stand before a program and
//! change what it inherits.

/// Changes that take system calls.
const CHANGE: &str = include_str!("surroundings.py");

/// Dispositions and masks of signals.
pub const SIGNALS: &[&[&str]] = &[
    &["env", "--ignore-signal=CHLD"],
    &["env", "--ignore-signal=PIPE"],
    &["env", "--ignore-signal=TSTP,TTIN,TTOU,CONT"],
    &["env", "--ignore-signal=XFSZ,XCPU,USR1,USR2,ALRM,URG,WINCH"],
    &["env", "--block-signal=CHLD"],
    &["env", "--block-signal"],
];

/// Standard streams and terminals.
pub const STREAMS: &[&[&str]] = &[
    &["sh", "-c", "exec \"$0\" \"$@\" <&-"],
    &["sh", "-c", "exec \"$0\" \"$@\" 2>&-"],
    &["sh", "-c", "exec \"$0\" \"$@\" <&- 2>&-"],
    NON_BLOCKING,
    &["setsid", "--wait"],
    &["nohup"],
];

/// Standard streams that don't block.
pub const NON_BLOCKING: &[&str] = &["python3", "-c", CHANGE, "non-blocking"];

/// Limits of resources, and a sandbox.
pub const LIMITS: &[&[&str]] = &[
    &["prlimit", "--core=0", "--memlock=0", "--msgqueue=0", "--sigpending=0"],
    &["prlimit", "--stack=unlimited"],
    &["prlimit", "--stack=1048576"],
    &["prlimit", "--nofile=256"],
    // Less than the memory that two ranks of a ring share.
    &["prlimit", "--fsize=524288"],
    &["prlimit", "--rtprio=0", "--nice=0"],
    &["nice", "-n", "19"],
    NO_MEMORY_FILES,
];

/// A sandbox without `memfd_create`.
pub const NO_MEMORY_FILES: &[&str] = &["python3", "-c", CHANGE, "no-memory-files"];

/// Folders, files and variables.
pub const PLACES: &[&[&str]] = &[
    &["sh", "-c", "d=$(mktemp -d) && cd \"$d\" && rmdir \"$d\" && exec \"$0\" \"$@\""],
    // A name in Latin-1.
    &[
        "sh",
        "-c",
        "d=$(printf 'caf\\351') && mkdir \"$d\" && cp \"$0\" \"$d\" && cd \"$d\" && \
         exec \"./${0##*/}\" \"$@\"",
    ],
    // The loader is the program that the system executes.
    &[
        "sh",
        "-c",
        "exec \"$(ldd \"$0\" | sed -n 's|^[[:space:]]*\\(/[^ ]*\\) (.*|\\1|p')\" \"$0\" \"$@\"",
    ],
    &["sh", "-c", "umask 777; exec \"$0\" \"$@\""],
    &["env", "--unset=HOME", "--unset=PATH", "--unset=USER", "--unset=LANG"],
    &["env", "FIBER_PORT=tcp://10.0.0.7:9464", "FIBER_SERVICE_HOST=10.0.0.7"],
    &["env", "LC_ALL=C", "TZ=Nowhere/Else", "COLUMNS=0", "LINES=-1"],
];

/// Namespaces of a container, whose first process the program is. It takes root.
pub const FIRST: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];
