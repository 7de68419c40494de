# JSV library for Tcl. A script defines jsv_on_start and jsv_on_verify, sources this file, and calls jsv_main.
#
# Parameters are global variables jsv_param_NAME, the environment of the job (after jsv_send_env) jsv_env_NAME.
# Functions that answer a question return 1 or 0, or the value ("" if there is none).

set jsv_logging_enabled "false"
# Empty: a new file, /tmp/jsv_PID_XXXXXX.log. A name that others can foretell may be a link of theirs.
set jsv_logfile ""

set jsv_state "initialized"
set jsv_all_params {}
set jsv_all_envs {}

proc _jsv_script_log {text} {
    if {$::jsv_logging_enabled eq "true"} {
        if {$::jsv_logfile eq ""} {
            close [file tempfile ::jsv_logfile "/tmp/jsv_[pid].log"]
        }
        set file [open $::jsv_logfile a]
        puts $file $text
        close $file
    }
}

proc _jsv_send_command {line} {
    puts stdout $line
    flush stdout
    _jsv_script_log "<<< $line"
}

proc _jsv_error {text} { _jsv_send_command "ERROR $text" }

proc jsv_script_log {args} { _jsv_script_log [join $args] }
proc jsv_send_command {args} { _jsv_send_command [join $args] }
proc jsv_send_error {args} { _jsv_error [join $args] }

# kind: param or env
proc _jsv_store {kind name value} {
    set "::jsv_${kind}_$name" $value
    if {![info exists "::_jsv_has_${kind}($name)"]} {
        set "::_jsv_has_${kind}($name)" 1
        lappend "::jsv_all_${kind}s" $name
    }
}

proc _jsv_drop {kind name} { unset -nocomplain "::jsv_${kind}_$name" }
proc _jsv_there {kind name} { return [info exists "::jsv_${kind}_$name"] }
proc _jsv_get {kind name} { return [expr {[_jsv_there $kind $name] ? [set "::jsv_${kind}_$name"] : ""}] }

proc _jsv_clear {kind} {
    foreach name [set "::jsv_all_${kind}s"] {
        _jsv_drop $kind $name
    }
    set "::jsv_all_${kind}s" {}
    array unset "::_jsv_has_${kind}"
}

proc _jsv_show {kind} {
    foreach name [set "::jsv_all_${kind}s"] {
        if {[_jsv_there $kind $name]} {
            _jsv_send_command "LOG INFO $kind $name=[_jsv_get $kind $name]"
        }
    }
}

proc jsv_clear_params {} { _jsv_clear param }
proc jsv_clear_envs {} { _jsv_clear env }
proc jsv_show_params {} { _jsv_show param }
proc jsv_show_envs {} { _jsv_show env }

# --- the environment of the job ---

proc jsv_send_env {} { _jsv_send_command "SEND ENV" }
proc jsv_is_env {name} { return [_jsv_there env $name] }
proc jsv_get_env {name} { return [_jsv_get env $name] }

proc jsv_add_env {name value} {
    _jsv_store env $name $value
    _jsv_send_command "ENV ADD $name $value"
}

proc jsv_mod_env {name value} {
    _jsv_store env $name $value
    _jsv_send_command "ENV MOD $name $value"
}

proc jsv_del_env {name} {
    if {[_jsv_there env $name]} {
        _jsv_drop env $name
        _jsv_send_command "ENV DEL $name"
    }
}

# --- parameters ---

proc jsv_is_param {name} { return [_jsv_there param $name] }
proc jsv_get_param {name} { return [_jsv_get param $name] }

proc jsv_set_param {name value} {
    _jsv_store param $name $value
    _jsv_send_command "PARAM $name $value"
}

proc jsv_del_param {name} {
    if {[_jsv_there param $name]} {
        _jsv_drop param $name
        _jsv_send_command "PARAM $name"
    }
}

# --- parts of list parameters: name[=value],name[=value]... ---

proc _jsv_part_name {item} { return [lindex [split $item "="] 0] }

# The item of a part, "" if there is none.
proc _jsv_find {name part} {
    foreach item [split [_jsv_get param $name] ","] {
        if {[_jsv_part_name $item] eq $part} { return $item }
    }
    return ""
}

proc jsv_sub_is_param {name part} { return [expr {[_jsv_find $name $part] ne ""}] }

proc jsv_sub_get_param {name part} {
    set item [_jsv_find $name $part]
    set at [string first "=" $item]
    return [expr {$at < 0 ? "" : [string range $item [expr {$at + 1}] end]}]
}

# Put an item in the place of a part, or at the end; an empty one takes the part out.
proc _jsv_replace {name part new} {
    set items {}
    foreach item [split [_jsv_get param $name] ","] {
        if {[_jsv_part_name $item] eq $part} {
            set item $new
            set new ""
        }
        if {$item ne ""} {
            lappend items $item
        }
    }
    if {$new ne ""} {
        lappend items $new
    }
    jsv_set_param $name [join $items ","]
}

proc jsv_sub_add_param {name part {value ""}} { _jsv_replace $name $part [expr {$value eq "" ? $part : "$part=$value"}] }

proc jsv_sub_del_param {name part} {
    if {[_jsv_there param $name]} {
        _jsv_replace $name $part ""
    }
}

# --- results ---

proc _jsv_result {word message} {
    global jsv_state
    if {$jsv_state ne "verifying"} {
        _jsv_error "a result was given in state $jsv_state"
        return
    }
    set jsv_state "initialized"
    _jsv_send_command [string trimright "RESULT STATE $word [join $message]"]
}

proc jsv_accept {args} { _jsv_result ACCEPT $args }
proc jsv_correct {args} { _jsv_result CORRECT $args }
proc jsv_reject {args} { _jsv_result REJECT $args }
proc jsv_reject_wait {args} { _jsv_result REJECT_WAIT $args }
proc jsv_log_info {args} { _jsv_send_command "LOG INFO [join $args]" }
proc jsv_log_warning {args} { _jsv_send_command "LOG WARNING [join $args]" }
proc jsv_log_error {args} { _jsv_send_command "LOG ERROR [join $args]" }

# --- the dialogue ---

proc _jsv_need {wanted command} {
    if {$::jsv_state eq $wanted} { return 1 }
    _jsv_error "$command was received in state $::jsv_state"
    return 0
}

# The text before the first blank and the text after it.
proc _jsv_cut {text} {
    set at [string first " " $text]
    if {$at < 0} { return [list $text ""] }
    return [list [string range $text 0 [expr {$at - 1}]] [string range $text [expr {$at + 1}] end]]
}

proc _jsv_on_param {text} {
    if {![_jsv_need started PARAM]} { return }
    lassign [_jsv_cut $text] name value
    if {$value eq "" && ![string match {CMDARG[0-9]*} $name]} {
        _jsv_drop param $name
    } else {
        _jsv_store param $name $value
    }
}

proc _jsv_on_env {text} {
    if {![_jsv_need started ENV]} { return }
    lassign [_jsv_cut $text] verb rest
    lassign [_jsv_cut $rest] name value
    if {$verb eq "ADD"} {
        _jsv_store env $name $value
    }
}

proc _jsv_on_start {} {
    if {[_jsv_need initialized START]} {
        jsv_on_start
        set ::jsv_state "started"
        _jsv_send_command "STARTED"
    }
}

proc _jsv_on_begin {} {
    if {![_jsv_need started BEGIN]} { return }
    set ::jsv_state "verifying"
    jsv_on_verify
    jsv_clear_params
    jsv_clear_envs
    if {$::jsv_state eq "verifying"} {
        set ::jsv_state "initialized"
        _jsv_error "jsv_on_verify gave no result"
    }
}

proc jsv_main {} {
    while {[gets stdin line] >= 0} {
        _jsv_script_log ">>> $line"
        lassign [_jsv_cut $line] command rest
        switch -exact -- $command {
            START { _jsv_on_start }
            PARAM { _jsv_on_param $rest }
            ENV { _jsv_on_env $rest }
            BEGIN { _jsv_on_begin }
            SHOW { jsv_show_params; jsv_show_envs }
            QUIT { return }
            "" { }
            default { _jsv_error "unknown command $command" }
        }
    }
}
