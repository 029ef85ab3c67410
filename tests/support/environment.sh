# Starts a test from a known environment: . tests/support/environment.sh, as the first step. tests/run and lib.sh do so.
#
# Removes the variables that change results, timing or output, and sets the rest, so that no verdict depends on the
# shell, launcher or make that started the test. A test that needs such a variable sets it afterwards.
#
# Keeps OPENBLAS_CORETYPE: some OpenBLAS builds choose kernels that crash or compute wrong on newer processors, so the
# machine's owner names others. Tests must pass with any value; a test about this variable sets its own.
for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in
    OPENBLAS_CORETYPE | CUDA_HOME | CUDA_PATH | CUDA_VISIBLE_DEVICES | PYTHONPATH | PYTHONHOME) ;;
    OPENBLAS_* | GOTO_* | OMP_* | GOMP_* | KMP_* | MKL_* | BLIS_* | LIBXSMM_*) unset "$name" ;; # matrix products, threads
    PIANOLA_* | STANDIN_* | CUDA_* | CUBLAS* | CUDNN_* | NCCL_* | NVIDIA_TF32_OVERRIDE | NVTX_*) unset "$name" ;;
    RANK | WORLD_SIZE | LOCAL_RANK | LOCAL_WORLD_SIZE | MASTER_* | TORCHELASTIC_*) unset "$name" ;; # launchers
    SLURM_* | OMPI_* | PMI_* | PMIX_* | PRTE_* | HYDRA_*) unset "$name" ;;
    NO_COLOR | CLICOLOR* | FORCE_COLOR | COLORTERM | COLUMNS | LINES | TERM* | LANG | LANGUAGE | LC_* | TZ) unset "$name" ;;
    GREP_* | LESS* | PAGER | MANPAGER | MANWIDTH | MANOPT | XDG_* | POSIXLY_CORRECT) unset "$name" ;; # other programs
    MAKEFLAGS | MFLAGS | GNUMAKEFLAGS | MAKELEVEL | MAKEFILES | GIT_DIR | GIT_WORK_TREE | GIT_INDEX_FILE) unset "$name" ;;
    BASH_ENV | ENV | CDPATH | LUA_* | PYTHON?* | MALLOC_* | GLIBC_TUNABLES) unset "$name" ;;
    LSAN_OPTIONS | UBSAN_OPTIONS | CRITERION_*) unset "$name" ;;
    esac
done 2>/dev/null # bash complains about each missing locale
unset name
export LC_ALL=C.UTF-8 TERM=dumb TZ=UTC PYTHONDONTWRITEBYTECODE=1 # drawings use characters beyond ASCII
umask 022
