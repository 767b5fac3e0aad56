//! The sources of the image.

use fiber_test_support::docker::docker;
use fiber_test_support::trial;

use crate::engine::{Engine, fiber, own_name, run};

/// Returns the name of the image built from this program.
pub(crate) fn own(engine: &dyn Engine) -> String {
    run(engine, &["-a"], "exit 3").run().code(3);
    let pushed = engine.variables().into_iter().find(|(name, _)| *name == "FIBER_REGISTRY");
    let repository = match pushed {
        Some((_, registry)) => format!("{registry}/fiber-auto/engines"),
        None => "fiber-auto/engines".to_string(),
    };
    let images = docker(&["images", "--format", "{{.Repository}}:{{.Tag}}", &repository]);
    images.lines().next().expect("it was just built").to_string()
}

/// Returns the path of this program in that image.
pub(crate) fn path() -> String {
    let own = std::env::current_exe().expect("this binary is somewhere");
    format!("/fiber/bin/{}", own.file_name().expect("it has a name").to_string_lossy())
}

#[trial]
fn an_image_is_named(engine: &'static dyn Engine) {
    let image = own(engine);
    let (path, libraries) = (path(), "LD_LIBRARY_PATH=/fiber/lib");
    let options =
        ["run", "-a", "--env", "SCENARIO=pi", "--env", libraries, "--image", &image, &path];
    fiber(engine, &options).run().code(0).says(&["pi: 3.14"]);
}

#[trial]
fn an_image_is_built_from_a_dockerfile(engine: &'static dyn Engine) {
    let text = format!(
        "FROM {}\nENV LD_LIBRARY_PATH=/fiber/lib\nENTRYPOINT [\"{}\"]\n",
        own(engine),
        path()
    );
    let options = ["run", "-a", "--env", "SCENARIO=pi"];
    let setup = fiber(engine, &options).file("Dockerfile", &text);
    let ending = setup.run().code(0).says(&["pi: 3.14"]);
    // The image has the directory's name, which is unique.
    let directory =
        ending.directory().file_name().expect("it has a name").to_string_lossy().to_lowercase();
    let name = directory.replace(|c: char| !c.is_ascii_alphanumeric(), "");
    docker(&["rmi", "--force", &format!("fiber-dockerfile/{name}:latest")]);

    // --dockerfile names another file, and --bundle ignores the one in this directory.
    let directory = own_name("elsewhere");
    let setup =
        fiber(engine, &[&options[..], &["--dockerfile", &format!("{directory}/Image")]].concat());
    std::fs::create_dir(setup.directory().join(&directory)).expect("there is room");
    setup.file(&format!("{directory}/Image"), &text).run().code(0).says(&["pi: 3.14"]);
    docker(&[
        "rmi",
        "--force",
        &format!("fiber-dockerfile/{}:latest", directory.replace('-', "_")),
    ]);
    run(engine, &["-a", "--bundle"], "pi")
        .file("Dockerfile", "nonsense")
        .run()
        .code(0)
        .says(&["pi: 3.14"]);
}

#[trial]
fn a_dockerfile_that_can_not_be_built(engine: &'static dyn Engine) {
    let ending = fiber(engine, &["run", "-a"])
        .file("Dockerfile", "FROM scratch\nCOPY no-such-file /\n")
        .run()
        .code(125);
    assert!(
        ending.errors.contains("could not be built") && ending.errors.contains("no-such-file"),
        "{}",
        ending.errors
    );
    let ending = fiber(engine, &["run", "--dockerfile", "no/such"]).run().code(125);
    assert!(ending.errors.contains("there is no file `no/such`"), "{}", ending.errors);
}
