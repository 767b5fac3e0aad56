# Prepares the start of the program on a host of the job: between `begin.sh` and `keep.sh` of the
# folder `shell`, which say how such a script is written.

# This shell ends by itself once the program has ended, and kills the others of the group before.
# Grid Engine would delete the job if a signal ended it.
# The signals by which it warns before it does, if the head ignores them: that ends this program in
# order then.
[ -z "$ignored" ] || trap "" $ignored;
end() { kill -9 "$pid"; };
in_use() { :; };
file=$program;
[ -x "$file" ] || refuse program "$file";
