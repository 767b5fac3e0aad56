#[fiber::meta(cpus = 1)]
fn task(x: u32) -> u32 {
    x
}

fn main() {
    task(1);
}
