# A UEFI machine's operating system: says on the console that it runs, and restarts the machine (UEFI 2.10, 4.3 and 8.5).
.globl start
start:
    sub $40, %rsp               # the callee's own space
    mov %rdx, %rbx              # the system table
    mov 64(%rbx), %rcx          # ConOut
    lea text(%rip), %rdx
    call *8(%rcx)               # OutputString
    xor %ecx, %ecx              # EfiResetCold
    xor %edx, %edx
    xor %r8d, %r8d
    xor %r9d, %r9d
    mov 88(%rbx), %rax          # RuntimeServices
    call *104(%rax)             # ResetSystem
    hlt
text:
    .string16 "\r\nRACK the disk boots\r\n"
