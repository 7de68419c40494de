# JSV library for Perl. A script gives jsv_on_start and jsv_on_verify code references, and calls jsv_main.
#
# List parameters are references to hashes (name => value, undef for a name alone); their order is kept when they are
# sent back, and what a script adds comes last.

package JSV;

use strict;
use warnings;
use Exporter qw(import);

our @EXPORT = qw(
    jsv_on_start jsv_on_verify jsv_main
    jsv_get_param_hash jsv_set_param jsv_del_param jsv_sub_add_param jsv_sub_del_param
    jsv_get_env_hash jsv_is_env jsv_get_env jsv_add_env jsv_mod_env jsv_del_env
    jsv_accept jsv_correct jsv_reject jsv_reject_wait
);
our @EXPORT_OK = qw(
    jsv_is_param jsv_get_param jsv_sub_is_param jsv_sub_get_param
    jsv_show_params jsv_show_envs jsv_clear_params jsv_clear_envs
    jsv_send_env jsv_send_command jsv_send_error jsv_script_log
    jsv_log_info jsv_log_warning jsv_log_error
    $jsv_logging_enabled
);
our %EXPORT_TAGS = (ALL => [@EXPORT, @EXPORT_OK], DEFAULT => \@EXPORT);

# True: what is received and sent is written to a file.
our $jsv_logging_enabled = 0;
my $log;

my %is_list = map { $_ => 1 }
    qw(ac e hold_jid hold_jid_ad i l_hard l_soft M m masterq o pe q q_hard q_soft S u);

my $state = 'initialized';
my (%param, %env);
my %order;      # of the parts of list parameters, as received: name => [part, ...]
my $on_start  = sub { };
my $on_verify = sub { jsv_accept() };

sub jsv_on_start {
    $on_start = $_[0] if @_;
    return $on_start;
}

sub jsv_on_verify {
    $on_verify = $_[0] if @_;
    return $on_verify;
}

# --- what is sent ---

sub jsv_script_log {
    return unless $jsv_logging_enabled;
    # A name that others can foretell may be a link of theirs.
    ($log) = eval { require File::Temp; File::Temp::tempfile("jsv_$$.XXXXXXXX", DIR => '/tmp') } unless $log;
    syswrite $log, "@_\n" if $log;
    return;
}

sub jsv_send_command {
    my $line = join ' ', map { defined $_ ? $_ : '' } @_;
    local $| = 1;
    print "$line\n";
    jsv_script_log("<<< $line") if $jsv_logging_enabled;
    return;
}

sub jsv_send_error   { return jsv_send_command('ERROR', @_) }
sub jsv_send_env     { return jsv_send_command('SEND ENV') }
sub jsv_log_info     { return jsv_send_command('LOG INFO', @_) }
sub jsv_log_warning  { return jsv_send_command('LOG WARNING', @_) }
sub jsv_log_error    { return jsv_send_command('LOG ERROR', @_) }

sub _result {
    my ($word, @message) = @_;
    return jsv_send_error("a result was given in state $state") if $state ne 'verifying';
    $state = 'initialized';
    return jsv_send_command('RESULT STATE', $word, @message);
}

sub jsv_accept      { return _result('ACCEPT', @_) }
sub jsv_correct     { return _result('CORRECT', @_) }
sub jsv_reject      { return _result('REJECT', @_) }
sub jsv_reject_wait { return _result('REJECT_WAIT', @_) }

# --- parameters ---

sub _copy {
    my ($from) = @_;
    return map { $_ => (ref $from->{$_} ? { %{ $from->{$_} } } : $from->{$_}) } keys %{$from};
}

# The parts of a list: those that were received in their order, then new ones.
sub _parts {
    my ($name, $list) = @_;
    my %known = map { $_ => 1 } @{ $order{$name} || [] };
    return ((grep { exists $list->{$_} } @{ $order{$name} || [] }), sort grep { !$known{$_} } keys %{$list});
}

sub _text {
    my ($name, $value) = @_;
    return defined $value ? $value : '' unless ref $value;
    return join ',', map { defined $value->{$_} ? "$_=$value->{$_}" : $_ } _parts($name, $value);
}

sub jsv_get_param_hash { return _copy(\%param) }
sub jsv_is_param       { return exists $param{ $_[0] } }
sub jsv_get_param      { return $param{ $_[0] } }

sub jsv_set_param {
    my ($name, $value) = @_;
    $param{$name} = $value;
    return jsv_send_command('PARAM', $name, _text($name, $value));
}

sub jsv_del_param { my ($name) = @_; delete $param{$name}; return jsv_send_command('PARAM', $name); }

# A list parameter that a script has set as a text is taken apart when a part of it is asked for.
sub _list {
    my ($name) = @_;
    $param{$name} = _taken_apart($name, $param{$name}) if exists $param{$name} && !ref $param{$name};
    return $param{$name};
}

sub jsv_sub_is_param {
    my ($name, $part) = @_;
    my $list = _list($name);
    return $list && exists $list->{$part} ? 1 : undef;
}

sub jsv_sub_get_param {
    my ($name, $part) = @_;
    return unless jsv_sub_is_param($name, $part);
    return $param{$name}{$part};
}

sub jsv_sub_add_param {
    my ($name, $part, $value) = @_;
    my $list = _list($name) || {};
    push @{ $order{$name} }, $part unless grep { $_ eq $part } @{ $order{$name} || [] };
    $list->{$part} = $value;
    return jsv_set_param($name, $list);
}

sub jsv_sub_del_param {
    my ($name, $part) = @_;
    my $list = _list($name) || {};
    delete $list->{$part};
    return jsv_set_param($name, $list);
}

# --- the environment of the job ---

sub jsv_get_env_hash { return _copy(\%env) }
sub jsv_is_env       { return exists $env{ $_[0] } }
sub jsv_get_env      { return $env{ $_[0] } }

sub _change_env {
    my ($verb, $name, $value) = @_;
    $env{$name} = $value;
    return jsv_send_command('ENV', $verb, $name, $value);
}

sub jsv_add_env { return _change_env('ADD', @_) }
sub jsv_mod_env { return _change_env('MOD', @_) }

sub jsv_del_env { my ($name) = @_; delete $env{$name}; return jsv_send_command('ENV DEL', $name); }

sub jsv_clear_params { %param = (); %order = (); return }
sub jsv_clear_envs   { %env   = (); return }

sub jsv_show_params {
    jsv_log_info("param $_=" . _text($_, $param{$_})) for sort keys %param;
    return;
}

sub jsv_show_envs {
    jsv_log_info("env $_=$env{$_}") for sort keys %env;
    return;
}

# --- what is received ---

sub _taken_apart {
    my ($name, $text) = @_;
    my (%list, @names);
    for my $item (split /,/, $text) {
        my ($part, $value) = split /=/, $item, 2;
        push @names, $part unless exists $list{$part};
        $list{$part} = $value;
    }
    $order{$name} = \@names;
    return \%list;
}

sub _need {
    my ($wanted, $command) = @_;
    return 1 if $state eq $wanted;
    jsv_send_error("$command was received in state $state");
    return 0;
}

my %command = (
    START => sub {
        return unless _need('initialized', 'START');
        $on_start->();
        $state = 'started';
        jsv_send_command('STARTED');
    },
    PARAM => sub {
        return unless _need('started', 'PARAM');
        my ($name, $value) = split / /, $_[0], 2;
        if (!defined $value || ($value eq '' && $name !~ /^CMDARG\d/)) {
            delete $param{$name};
        } else {
            $param{$name} = $is_list{$name} ? _taken_apart($name, $value) : $value;
        }
    },
    ENV => sub {
        return unless _need('started', 'ENV');
        my ($verb, $name, $value) = split / /, $_[0], 3;
        $env{$name} = defined $value ? $value : '' if $verb eq 'ADD' && defined $name;
    },
    BEGIN => sub {
        return unless _need('started', 'BEGIN');
        $state = 'verifying';
        $on_verify->();
        jsv_clear_params();
        jsv_clear_envs();
        return if $state eq 'initialized';
        $state = 'initialized';
        jsv_send_error('jsv_on_verify gave no result');
    },
    SHOW => sub {
        jsv_show_params();
        jsv_show_envs();
    },
);

sub jsv_main {
    while (defined(my $line = <STDIN>)) {
        chomp $line;
        next if $line eq '';
        jsv_script_log(">>> $line") if $jsv_logging_enabled;
        my ($word, $rest) = split / /, $line, 2;
        last if $word eq 'QUIT';
        my $act = $command{$word};
        if ($act) {
            $act->(defined $rest ? $rest : '');
        } else {
            jsv_send_error("unknown command $word");
        }
    }
    return;
}

1;
