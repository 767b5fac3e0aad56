#[fiber::main]
fn start() {}

fn main() {
    start();
}
