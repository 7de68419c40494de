# JSV library for POSIX shells (dash, bash, ksh, busybox). A script defines jsv_on_start and jsv_on_verify, sources this
# file, and calls jsv_main. No external command is run for a parameter; values are never expanded again.
#
# Parameters are variables $jsv_param_NAME, the environment of the job (after jsv_send_env) $jsv_env_NAME.
# Functions that answer a question print their answer: true or false, or the value.

PATH=/bin:/usr/bin
export PATH

# "true": what is received and sent is written to $jsv_logfile; without one to a new file, /tmp/jsv_PID.XXXXXXXX.
jsv_logging_enabled=${jsv_logging_enabled:-false}
jsv_logfile=${jsv_logfile:-}

_jsv_state=initialized
# Names of the variables that are set: those of the last portion, and how many portions ($_jsv_params_1...) are full. Text
# that grows by each name, or by each part of a list, would take time that grows with the square of their number.
_jsv_params="" _jsv_param_portions=0
_jsv_envs="" _jsv_env_portions=0
_jsv_most=1000      # characters of a portion

_jsv_script_log() {
    [ "$jsv_logging_enabled" = true ] || return 0
    # A name that others can foretell may be a link of theirs.
    : "${jsv_logfile:=$(mktemp "/tmp/jsv_$$.XXXXXXXX" || echo /dev/null)}"
    printf '%s\n' "$*" >>"$jsv_logfile"
}

_jsv_send_command() {
    printf '%s\n' "$*"
    _jsv_script_log "<<< $*"
}

_jsv_error() { _jsv_send_command "ERROR $*"; }

jsv_script_log() { _jsv_script_log "$@"; }
jsv_send_command() { _jsv_send_command "$@"; }
jsv_send_error() { _jsv_error "$@"; }

# A name may become part of the name of a variable.
_jsv_good_name() {
    case $1 in
        '' | *[!A-Za-z0-9_]*) return 1 ;;
    esac
}

# _jsv_store param|env NAME VALUE
_jsv_store() {
    _jsv_good_name "$2" || return 0
    eval "jsv_$1_$2=\$3; [ \"\${_jsv_has_$1_$2:-}\" ]" || _jsv_note "$1" "$2"
}

_jsv_note() {
    eval "_jsv_has_$1_$2=1 _jsv_$1s=\"\$_jsv_$1s $2\"; _jsv_names=\$_jsv_$1s"
    if [ "${#_jsv_names}" -gt "$_jsv_most" ]; then
        eval "_jsv_portion=\$((_jsv_$1_portions + 1)) _jsv_$1s=''"
        eval "_jsv_$1s_$_jsv_portion=\$_jsv_names _jsv_$1_portions=$_jsv_portion"
    fi
}

# _jsv_drop param|env NAME
_jsv_drop() { if _jsv_good_name "$2"; then unset "jsv_$1_$2"; fi; }

# _jsv_there param|env NAME: an empty value is no value.
_jsv_there() {
    _jsv_good_name "$2" || return 1
    eval "[ -n \"\${jsv_$1_$2:-}\" ]"
}

_jsv_say() { if "$@"; then printf 'true\n'; else printf 'false\n'; fi; }

# _jsv_print param|env NAME
_jsv_print() { if _jsv_there "$1" "$2"; then eval "printf '%s\\n' \"\$jsv_$1_$2\""; fi; }

# _jsv_each param|env FUNCTION: once for each name
_jsv_each() {
    eval "_jsv_last=\$_jsv_$1_portions"
    _jsv_portion=1
    while [ "$_jsv_portion" -le "$_jsv_last" ]; do
        eval "_jsv_each_of \"\$1\" \"\$2\" \"\$_jsv_$1s_$_jsv_portion\""
        _jsv_portion=$((_jsv_portion + 1))
    done
    eval "_jsv_each_of \"\$1\" \"\$2\" \"\$_jsv_$1s\""
}

# _jsv_each_of param|env FUNCTION NAMES
_jsv_each_of() {
    _jsv_names=$3
    while [ -n "$_jsv_names" ]; do
        _jsv_names=${_jsv_names# }
        _jsv_name=${_jsv_names%% *}
        _jsv_names=${_jsv_names#"$_jsv_name"}
        "$2" "$1" "$_jsv_name"
    done
}

_jsv_show() { if _jsv_there "$1" "$2"; then eval "_jsv_send_command \"LOG INFO $1 $2=\$jsv_$1_$2\""; fi; }

# _jsv_forget param|env NAME
_jsv_forget() { unset "jsv_$1_$2" "_jsv_has_$1_$2"; }

jsv_clear_params() {
    _jsv_each param _jsv_forget
    _jsv_params="" _jsv_param_portions=0
}

jsv_clear_envs() {
    _jsv_each env _jsv_forget
    _jsv_envs="" _jsv_env_portions=0
}

jsv_show_params() { _jsv_each param _jsv_show; }
jsv_show_envs() { _jsv_each env _jsv_show; }

# --- the environment of the job ---

jsv_send_env() { _jsv_send_command "SEND ENV"; }
jsv_is_env() { _jsv_say _jsv_there env "$1"; }
jsv_get_env() { _jsv_print env "$1"; }

jsv_add_env() {
    _jsv_store env "$1" "$2"
    _jsv_send_command "ENV ADD $1 $2"
}

jsv_mod_env() {
    _jsv_store env "$1" "$2"
    _jsv_send_command "ENV MOD $1 $2"
}

jsv_del_env() {
    if _jsv_there env "$1"; then
        _jsv_drop env "$1"
        _jsv_send_command "ENV DEL $1"
    fi
}

# --- parameters ---

jsv_is_param() { _jsv_say _jsv_there param "$1"; }
jsv_get_param() { _jsv_print param "$1"; }

jsv_set_param() {
    _jsv_store param "$1" "$2"
    _jsv_send_command "PARAM $1 $2"
}

jsv_del_param() {
    if _jsv_there param "$1"; then
        _jsv_drop param "$1"
        _jsv_send_command "PARAM $1"
    fi
}

# --- parts of list parameters: name[=value],name[=value]... ---

# Between these two, $list is split at commas, and nothing else happens to it. (Cutting with ${list#*,} takes time that
# grows with the square of the length.)
_jsv_split_at_commas() {
    case $- in
        *f*) _jsv_globbing=-f ;;
        *) _jsv_globbing=+f ;;
    esac
    _jsv_ifs=$IFS IFS=,
    set -f
}
_jsv_split_as_before() {
    IFS=$_jsv_ifs
    set "$_jsv_globbing"
}

# _jsv_find PARAM PART: true if the part is there, which is then in $_jsv_found
_jsv_find() {
    _jsv_found=""
    _jsv_there param "$1" || return 1
    eval "_jsv_list=\$jsv_param_$1"
    _jsv_split_at_commas
    for _jsv_part in $_jsv_list; do
        case $_jsv_part in
            "$2" | "$2="*) _jsv_found=$_jsv_part && break ;;
        esac
    done
    _jsv_split_as_before
    [ -n "$_jsv_found" ]
}

jsv_sub_is_param() { _jsv_say _jsv_find "$1" "$2"; }

jsv_sub_get_param() {
    if _jsv_find "$1" "$2" && [ "$_jsv_found" != "$2" ]; then printf '%s\n' "${_jsv_found#"$2="}"; fi
}

# _jsv_replace PARAM PART NEW: put NEW in the place of the part, or at the end; without NEW take the part out
_jsv_replace() {
    _jsv_list="" _jsv_result="" _jsv_more="" _jsv_new=$3
    if _jsv_there param "$1"; then eval "_jsv_list=\$jsv_param_$1"; fi
    _jsv_split_at_commas
    for _jsv_part in $_jsv_list; do
        case $_jsv_part in
            "$2" | "$2="*) _jsv_part=$_jsv_new _jsv_new="" ;;
        esac
        if [ -n "$_jsv_part" ]; then _jsv_more=$_jsv_more,$_jsv_part; fi
        if [ "${#_jsv_more}" -gt "$_jsv_most" ]; then _jsv_result=$_jsv_result$_jsv_more _jsv_more=""; fi
    done
    _jsv_split_as_before
    _jsv_result=$_jsv_result$_jsv_more${_jsv_new:+,$_jsv_new}
    jsv_set_param "$1" "${_jsv_result#,}"
}

jsv_sub_add_param() { _jsv_replace "$1" "$2" "$2${3:+=$3}"; }
jsv_sub_del_param() { if _jsv_there param "$1"; then _jsv_replace "$1" "$2" ""; fi; }

# --- results ---

_jsv_result_is() {
    if [ "$_jsv_state" != verifying ]; then
        _jsv_error "a result was given in state $_jsv_state"
        return
    fi
    _jsv_state=initialized
    _jsv_send_command "RESULT STATE $*"
}

jsv_accept() { _jsv_result_is ACCEPT "$@"; }
jsv_correct() { _jsv_result_is CORRECT "$@"; }
jsv_reject() { _jsv_result_is REJECT "$@"; }
jsv_reject_wait() { _jsv_result_is REJECT_WAIT "$@"; }
jsv_log_info() { _jsv_send_command "LOG INFO $*"; }
jsv_log_warning() { _jsv_send_command "LOG WARNING $*"; }
jsv_log_error() { _jsv_send_command "LOG ERROR $*"; }

# --- the dialogue ---

_jsv_need() {
    if [ "$_jsv_state" != "$1" ]; then
        _jsv_error "$2 was received in state $_jsv_state"
        return 1
    fi
}

_jsv_on_param() {
    _jsv_need started PARAM || return 0
    _jsv_key=${1%% *}
    case $1 in
        *" "*) _jsv_store param "$_jsv_key" "${1#"$_jsv_key "}" ;;
        *) _jsv_drop param "$_jsv_key" ;;
    esac
}

_jsv_on_env() {
    _jsv_need started ENV || return 0
    case $1 in
        "ADD "*)
            _jsv_rest=${1#ADD }
            _jsv_key=${_jsv_rest%% *}
            case $_jsv_rest in
                *" "*) _jsv_rest=${_jsv_rest#"$_jsv_key "} ;;
                *) _jsv_rest="" ;;
            esac
            _jsv_store env "$_jsv_key" "$_jsv_rest"
            ;;
    esac
}

_jsv_on_start() {
    _jsv_need initialized START || return 0
    jsv_on_start
    _jsv_state=started
    _jsv_send_command STARTED
}

_jsv_on_begin() {
    _jsv_need started BEGIN || return 0
    _jsv_state=verifying
    jsv_on_verify
    jsv_clear_params
    jsv_clear_envs
    if [ "$_jsv_state" = verifying ]; then
        _jsv_state=initialized
        _jsv_error "jsv_on_verify gave no result"
    fi
}

jsv_main() {
    while IFS= read -r _jsv_line; do
        _jsv_script_log ">>> $_jsv_line"
        case $_jsv_line in
            "PARAM "*) _jsv_on_param "${_jsv_line#PARAM }" ;;
            "ENV "*) _jsv_on_env "${_jsv_line#ENV }" ;;
            START) _jsv_on_start ;;
            BEGIN) _jsv_on_begin ;;
            QUIT) return 0 ;;
            SHOW)
                jsv_show_params
                jsv_show_envs
                ;;
            "") ;;
            *) _jsv_error "unknown command ${_jsv_line%% *}" ;;
        esac
    done
}
