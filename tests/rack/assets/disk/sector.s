# The first sector of a BIOS machine's disk: says on the first serial port that it runs, and restarts the machine.
.code16
    cld
    xor %ax, %ax
    mov %ax, %ds
    mov $text, %si
    mov $0x3f8, %dx
next:
    lodsb
    test %al, %al
    jz done
    out %al, %dx
    jmp next
done:
    mov $0xfe, %al              # by the keyboard controller
    out %al, $0x64
    hlt
text:
    .asciz "\r\nRACK the disk boots\r\n"
    .org 510
    .word 0xaa55
