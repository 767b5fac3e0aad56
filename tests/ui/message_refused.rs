#[fiber::message(result = "u64")]
struct ByName;

#[fiber::message]
fn function() {}

#[fiber::message]
struct Borrowed<'a>(&'a str);

#[fiber::message(u64)]
#[derive(Clone, serde::Serialize)]
struct Twice;

fn main() {
    function();
}
